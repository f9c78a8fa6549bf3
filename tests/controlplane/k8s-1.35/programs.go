package main

import (
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Commands are made only when asked for: each New…Command registers flags and
// feature gates in process-wide registries, and two would see each other's.
func init() {
	programs["etcd"] = func() { etcdmain.Main(os.Args) }
	programs["kubectl"] = runKubectl
	programs["kube-apiserver"] = func() { run(apiserver.NewAPIServerCommand()) }
	programs["kube-controller-manager"] = func() { run(controllermanager.NewControllerManagerCommand()) }
	programs["kube-scheduler"] = func() { run(scheduler.NewSchedulerCommand()) }
}

func run(command *cobra.Command) { os.Exit(cli.Run(command)) }

// runKubectl does as kubectl's own main: its errors are already worded for people.
func runKubectl() {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
