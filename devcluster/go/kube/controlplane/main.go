// Command controlplane holds a whole Kubernetes control plane in one file:
//
//	controlplane etcd | kube-apiserver | kube-controller-manager | kube-scheduler | kubectl [flags]
//
// The name it is called by works too, so symlinks named after the components do.  Flags are upstream's own, except
// etcd's, which are the subset that etcd.go lists.
//
// One process still runs one component: kube-apiserver's constructor and kube-scheduler's RunE both take the
// process-wide signal handler, and feature gates are process-wide.  Only the chosen command is ever constructed.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // time zones of CronJobs on machines without /usr/share/zoneinfo

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics on /metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var components = map[string]func() *cobra.Command{
	"etcd":                    newEtcdCommand,
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": kcm.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

func main() {
	name := filepath.Base(os.Args[0])
	construct, ok := components[name]
	if !ok && len(os.Args) > 1 {
		name = os.Args[1]
		if construct, ok = components[name]; ok {
			os.Args = append([]string{name}, os.Args[2:]...)
		}
	}
	if !ok {
		known := slices.Sorted(maps.Keys(components))
		fmt.Fprintf(os.Stderr, "usage: controlplane %s [flags]\n", strings.Join(known, "|"))
		os.Exit(2)
	}
	if name == "kubectl" { // upstream's kubectl prints its errors itself and maps them to exit codes
		if err := cli.RunNoErrOutput(construct()); err != nil {
			kubectlutil.CheckErr(err)
		}
		return
	}
	os.Exit(cli.Run(construct()))
}
