// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network/objects/plan"
)

func (e *env) approveCommand() *cobra.Command {
	cmd := group("approve", "Approve what a peer announced after the peering was agreed")
	e.addNoun(cmd, "ranges", nil, subcommand{
		"CLUSTER_ID", "See the later address ranges of a peer as they are, not remapped", "milan", approveRanges})
	return cmd
}

// approveRanges approves only the ranges that it prints, since the peer may announce more
// meanwhile.
func approveRanges(o *single) work {
	o.Flags().Lookup("namespace").Usage = "Namespace of the Configuration (default: looked for in all)"
	o.completes(activeIDs())
	o.outputFlag("Print the Configuration afterwards", "", "json", "yaml", "name")
	return func(s *script, c *cluster) error {
		peer, list := o.name, &netv1beta1.ConfigurationList{}
		if err := c.listOf(s.ctx, c.tenant, peer, list); err != nil {
			return err
		}
		found := api.Oldest(list.Items)
		if found == nil {
			return fmt.Errorf("cluster %q has no Configuration here; see 'liqoctl info'", peer)
		}
		ranges := plan.UnapprovedCIDRs(found)
		if len(ranges) == 0 {
			s.info(noCluster, "No ranges of cluster %q wait for approval", peer)
			return nil
		}
		s.warn(noCluster, "These ranges of cluster %q will no longer be remapped: %s; connections to the addresses at "+
			"which they are seen now end", peer, strings.Join(ranges, ", "))
		if err := s.confirm("approve"); err != nil {
			return err
		}
		if present := found.Annotations[api.AnnotationApprovedCIDRs]; present != "" {
			ranges = append(strings.Split(present, ","), ranges...)
		}
		if err := c.annotate(s.ctx, found, api.AnnotationApprovedCIDRs, strings.Join(ranges, ",")); err != nil {
			return err
		}
		s.info(noCluster, "Ranges of cluster %q approved", peer)
		return s.env.printStored(o.output, found)
	}
}
