package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

// runCoreDNS serves a cluster's own names and nothing else.  The order of the directives is the order in which a
// query passes the plugins.
func runCoreDNS() {
	dnsserver.Directives = []string{"bind", "errors", "health", "ready", "cache", "kubernetes"}
	coremain.Run()
}
