package main

import (
	"errors"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
)

// newEtcdCommand runs an etcd of one member through the embed package.  The flags carry the names of etcd's own
// program, so the launcher starts either; those that a single member does not need are taken and have no effect.
func newEtcdCommand() *cobra.Command {
	cfg := embed.NewConfig()
	var client, peer string
	cmd := &cobra.Command{Use: "etcd", SilenceUsage: true, RunE: func(*cobra.Command, []string) error {
		clientURL, err := url.Parse(client)
		if err != nil {
			return err
		}
		peerURL, err := url.Parse(peer)
		if err != nil {
			return err
		}
		cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*clientURL}, []url.URL{*clientURL}
		cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peerURL}, []url.URL{*peerURL}
		cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
		cfg.QuotaBackendBytes = 8 << 30 // benchmarks write more than the default of 2 GiB
		return serve(cfg)
	}}
	f := cmd.Flags()
	f.StringVar(&cfg.Dir, "data-dir", "default.etcd", "folder of the database; a tmpfs is fastest")
	f.StringVar(&cfg.Name, "name", "default", "the member's name")
	f.StringVar(&client, "listen-client-urls", "http://127.0.0.1:2379", "one URL for clients")
	f.StringVar(&peer, "listen-peer-urls", "http://127.0.0.1:2380", "one URL for peers")
	for _, name := range []string{"advertise-client-urls", "initial-advertise-peer-urls", "initial-cluster"} {
		f.String(name, "", "no effect: one member advertises what it listens on")
	}
	f.StringVar(&cfg.LogLevel, "log-level", "warn", "debug, info, warn or error")
	f.BoolVar(&cfg.UnsafeNoFsync, "unsafe-no-fsync", false, "never wait for the disk: a power cut loses the database")
	return cmd
}

func serve(cfg *embed.Config) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	select {
	case <-e.Server.ReadyNotify():
	case <-stop:
		return nil
	case err := <-e.Err():
		return err
	case <-time.After(time.Minute):
		return errors.New("etcd was not ready after a minute")
	}
	select {
	case <-stop:
		return nil
	case err := <-e.Err():
		return err
	}
}
