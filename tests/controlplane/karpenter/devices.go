package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unique"

	"github.com/samber/lo"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
)

// slices are the ResourceSlices that a node will have, as in a NodeShape.
type slices []struct {
	Driver  string              `json:"driver"`
	Devices []resourcev1.Device `json:"devices"`
}

// addDevices gives instance types the devices that their nodes will publish.
// text: JSON, the slices by the name of the instance type. A slice is a pool.
func addDevices(types []*cloudprovider.InstanceType, text []byte) error {
	var devices map[string]slices
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&devices); err != nil {
		return fmt.Errorf("devices: %w", err)
	}
	for _, one := range types {
		for at, slice := range devices[one.Name] {
			template := &cloudprovider.ResourceSliceTemplate{
				Driver: unique.Make(slice.Driver),
				Pool:   cloudprovider.ResourcePool{Name: unique.Make(fmt.Sprintf("pool-%d", at))},
			}
			for _, device := range slice.Devices {
				template.Devices = append(template.Devices, cloudprovider.Device{
					Name:                     unique.Make(device.Name),
					Attributes:               device.Attributes,
					Capacity:                 device.Capacity,
					AllowMultipleAllocations: lo.FromPtr(device.AllowMultipleAllocations),
					ConsumesCounters:         device.ConsumesCounters,
				})
			}
			templates := &one.DynamicResources.ResourceSliceTemplates
			*templates = append(*templates, template)
		}
		delete(devices, one.Name)
	}
	for name := range devices {
		return fmt.Errorf("devices: there is no instance type %s", name)
	}
	return nil
}
