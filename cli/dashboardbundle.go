// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/liqo-go/liqo/bundle"
	"github.com/liqo-go/liqo/dashboard"
)

// archiveDashboard shows the clusters of an archive of gather until it is interrupted, each at an address of its own:
// the second one at the next port.
func (e *env) archiveDashboard(ctx context.Context, port int, name string) error {
	archive, err := readArchive(name)
	if err != nil {
		return hint(err, "name an archive that '%s gather' has made", e.name)
	}
	if len(archive.Index.Clusters) == 0 {
		return fmt.Errorf("%s has no cluster", name)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var serve []func() error
	for _, c := range archive.Index.Clusters {
		listener, err := listenOn(port)
		if err != nil {
			return err
		}
		defer listener.Close() //nolint:errcheck // Serve may have closed it
		if port > 0 {
			port++
		}
		server := dashboard.NewOfArchive(dashboard.NewArchive(archive, c), listener)
		e.info(noCluster, "The %s cluster of the archive is at %s until you press Ctrl-C", c.Name, server.URL())
		serve = append(serve, func() error { defer stop(); return server.Serve(ctx) })
	}
	return inParallel(serve...)
}

// readArchive reads an archive of gather.
func readArchive(name string) (*bundle.Bundle, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open the archive: %w", err)
	}
	out, err := bundle.Read(bufio.NewReader(file))
	return out, errors.Join(err, file.Close())
}
