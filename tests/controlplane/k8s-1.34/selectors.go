package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
)

// A selector and a device as the conformance corpus writes them, and what
// Kubernetes' compiler and the API server's validation say of them.
type selector struct {
	Features   allocatorFeatures
	Mode       string
	Expression string
	Device     struct {
		Driver                   string
		Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
		Capacity                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity
		AllowMultipleAllocations *bool
	}
}

type verdict struct {
	Compile      string  `json:"compile"`
	CompileError *string `json:"compileError"`
	OutputType   *string `json:"outputType"`
	Admission    string  `json:"admission"`
	MaxCost      *uint64 `json:"maxCost"`
	Result       *bool   `json:"result"`
	RuntimeError *string `json:"runtimeError"`
	Cost         *uint64 `json:"cost"`
}

// selectors answers one record a line until its input ends, with the compiler
// that kube-scheduler has linked in.
func selectors(in io.Reader, out io.Writer) error {
	return answerLines(in, out, func(line []byte) (given verdict, err error) {
		var asked selector
		if err := json.Unmarshal(line, &asked); err != nil {
			return given, err
		}
		return asked.verdict(), nil
	})
}

func (s *selector) verdict() (given verdict) {
	// The compiler of cel-go panics on some texts, such as {?k: v, k: {}}.
	defer func() {
		if failure := recover(); failure != nil {
			given = verdict{Compile: "panic", CompileError: text(failure)}
		}
	}()
	mode := environment.StoredExpressions
	if s.Mode == "new" {
		mode = environment.NewExpressions
	}
	compiled := cel.GetCompiler(s.Features.compiler()).CompileCELExpression(s.Expression, cel.Options{EnvType: &mode})
	if compiled.Error != nil {
		return verdict{Compile: "error", CompileError: text(compiled.Error), Admission: s.admission("compile error")}
	}
	given = verdict{Compile: "ok", OutputType: text(compiled.OutputType), MaxCost: &compiled.MaxCost}
	given.Admission = s.admission("ok")
	if compiled.MaxCost > resourceapi.CELSelectorExpressionMaxCost {
		given.Admission = s.admission("too costly")
	}
	matches, details, err := compiled.DeviceMatches(context.Background(), cel.Device{
		Driver:                   s.Device.Driver,
		AllowMultipleAllocations: s.Device.AllowMultipleAllocations,
		Attributes:               s.Device.Attributes,
		Capacity:                 s.Device.Capacity,
	})
	if details != nil {
		given.Cost = details.ActualCost()
	}
	if err != nil {
		given.RuntimeError = text(err)
	} else {
		given.Result = &matches
	}
	return given
}

// admission is what the API server says of a text about which the compiler says this.
func (s *selector) admission(compiled string) string {
	if len(s.Expression) > resourceapi.CELSelectorExpressionMaxLength {
		return "too long"
	}
	return compiled
}

func text(value any) *string {
	written := fmt.Sprint(value)
	return &written
}
