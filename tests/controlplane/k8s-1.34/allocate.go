package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

const timePerRecord = 5 * time.Second

// A question as the conformance corpus writes it, and its answer.
type record struct {
	Features         allocatorFeatures
	Allocator        string
	Node             *corev1.Node
	Classes          classes
	Slices           []*resourceapi.ResourceSlice
	Claims           []*resourceapi.ResourceClaim
	Allocated        []device
	SharedDevices    []device
	ConsumedCapacity []device
}

type device struct {
	Driver, Pool, Device string
	ShareID              types.UID
	Capacity             map[resourceapi.QualifiedName]resource.Quantity
}

type answer struct {
	Outcome string                         `json:"outcome"`
	Fatal   bool                           `json:"fatal"`
	Error   string                         `json:"error"`
	Results []resourceapi.AllocationResult `json:"results,omitempty"`
}

type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("deviceclass %q not found", name)
}

// allocate answers one record a line until its input ends, with the allocator
// that kube-scheduler has linked in.
func allocate(in io.Reader, out io.Writer) error {
	caches := map[cel.Features]*cel.Cache{}
	return answerLines(in, out, func(line []byte) (given answer, err error) {
		var asked record
		if err := json.Unmarshal(line, &asked); err != nil {
			return given, err
		}
		features := asked.Features.compiler()
		if caches[features] == nil {
			caches[features] = cel.NewCache(1000, features)
		}
		return asked.answer(caches[features]), nil
	})
}

func (r *record) answer(cache *cel.Cache) (given answer) {
	ctx, cancel := context.WithTimeout(context.Background(), timePerRecord)
	defer cancel()
	defer func() {
		if reason := recover(); reason != nil {
			given = answer{Outcome: "panic", Error: fmt.Sprint(reason)}
		}
	}()
	allocator, err := r.allocator(ctx, cache)
	if err != nil {
		return failed(err)
	}
	results, err := allocator.Allocate(ctx, r.Node, r.Claims)
	switch {
	case ctx.Err() != nil:
		return answer{Outcome: "timeout"}
	case err != nil:
		return failed(err)
	case len(results) < len(r.Claims):
		return answer{Outcome: "none"}
	}
	for _, result := range results {
		for i := range result.Devices.Results {
			// Random: equal questions shall have equal answers.
			if share := result.Devices.Results[i].ShareID; share != nil {
				*share = "<uuid>"
			}
		}
	}
	return answer{Outcome: "allocated", Results: results}
}

func failed(err error) answer {
	return answer{Outcome: "error", Fatal: !concernsOneNode(err), Error: err.Error()}
}

func (r *record) state() structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, d := range r.Allocated {
		state.AllocatedDevices.Insert(d.id())
	}
	for _, d := range r.SharedDevices {
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(d.id(), &d.ShareID))
	}
	for _, d := range r.ConsumedCapacity {
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(d.id(), d.Capacity))
	}
	return state
}

func (d device) id() structured.DeviceID {
	return structured.MakeDeviceID(d.Driver, d.Pool, d.Device)
}
