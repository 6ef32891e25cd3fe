// Command node is the node side of Kubernetes in one file: node kubelet | kube-proxy | coredns [flags], or a symlink
// with one of these names.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var components = map[string]func(){
	"kubelet":    run(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kube-proxy": run(proxy.NewProxyCommand),
	"coredns":    runCoreDNS,
}

func run(construct func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(construct())) }
}

func main() {
	start, ok := components[filepath.Base(os.Args[0])]
	if !ok && len(os.Args) > 1 {
		if start, ok = components[os.Args[1]]; ok {
			os.Args = os.Args[1:]
		}
	}
	if !ok {
		fmt.Fprintln(os.Stderr, "usage: node kubelet|kube-proxy|coredns [flags]")
		os.Exit(2)
	}
	start()
}
