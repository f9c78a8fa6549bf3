// The programs of a Kubernetes control plane, and etcd, in one binary: the
// first argument names the program. One binary instead of five is linked once
// and shares its packages on disk, which halves the build of a test run.
// "allocate", "filters" and "selectors" are ours: they ask kube-scheduler's
// device allocator, what its filters say of a node, and its compiler of
// selectors, alone.
package main

import (
	"fmt"
	"os"
)

// The programs of Kubernetes, which programs.go adds. Without that file what is
// ours can be built alone: a version that has just come out is asked so.
var programs = map[string]func(){}

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	name := os.Args[1]
	os.Args = os.Args[1:]
	switch name {
	case "allocate":
		exit(allocate(os.Stdin, os.Stdout))
	case "filters":
		exit(filters(os.Stdin, os.Stdout))
	case "selectors":
		exit(selectors(os.Stdin, os.Stdout))
	default:
		run, known := programs[name]
		if !known {
			usage()
		}
		run()
	}
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: controlplane etcd|kube-apiserver|kube-scheduler|kube-controller-manager|kubectl|allocate|filters|selectors [flags]")
	os.Exit(2)
}
