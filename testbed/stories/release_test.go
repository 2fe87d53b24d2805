// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestRelease makes a release, pushes it to a registry between the clusters, and goes from clusters without Liqo to a
// pod at the provider with nothing but the release. It compiles for all platforms, so it is part of `make soak` only.
// It runs with -load=false, because nodes must have no image of Liqo.
func TestRelease(t *testing.T) {
	beginNew(t)
	folder, before, image := t.TempDir(), path, ""
	t.Cleanup(func() { path = before })
	path = folder + ":" + path // where makeRelease puts liqoctl
	tellAll(t, []story{
		{"nodes have no image of Liqo", nodesHaveNoImage},
		{"make and push a release", func(t *testing.T) { image = makeRelease(t, folder) }},
		{"from nothing to a pod at the provider", func(t *testing.T) { fromNothing(t, image) }},
		{"an image that does not exist is named with the node", func(t *testing.T) { absentImage(t, image) }},
	})
}

func nodesHaveNoImage(t *testing.T) {
	for _, c := range []cluster{rome, milan} {
		for _, node := range []string{"n1", "n2"} {
			images := onTestbed(t, "exec", c.name, node, "--", "ctr", "-n", "k8s.io", "images", "list", "-q")
			if strings.Contains(images, "liqo") {
				t.Errorf("%s-%s would pull no image; use new clusters and -load=false:\n%s", c.name, node, images)
			}
		}
	}
}

// makeRelease makes a release of the last commit, puts its liqoctl into a folder, and returns the image, name@digest.
// It pushes from a node, because only nodes and pods reach the registry.
func makeRelease(t *testing.T, folder string) (image string) {
	const version = "v0.2.0-rc.1"
	program, dist := filepath.Join(folder, "release"), filepath.Join(folder, "dist")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = filepath.Join(root, "deploy", "release")
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build deploy/release: %v\n%s", err, out)
	}
	address := strings.Fields(onTestbed(t, "registry", "up"))
	registry := address[len(address)-1] + "/liqo"
	began := time.Now()
	made, err := exec.Command(program, "build", "-dist", dist, "-source", root, "-version", version,
		"-registry", registry, "-unsigned", "-url", "https://example.com/"+version).CombinedOutput()
	if err != nil {
		t.Fatalf("make a release: %v\n%s", err, made)
	}
	t.Logf("made in %.0f s\n%s", time.Since(began).Seconds(), made)
	t.Log(onTestbed(t, "exec", "rome", "n1", "--",
		program, "push", "-dist", dist, "-registry", registry, "-plain-http", "-unsigned"))
	archive := filepath.Join(dist, "liqoctl-linux-"+runtime.GOARCH+".tar.gz")
	if out, err := exec.Command("tar", "-xzf", archive, "-C", folder, "liqoctl").CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", archive, err, out)
	}
	image = regexp.MustCompile(regexp.QuoteMeta(registry) + `/liqo@sha256:[0-9a-f]{64}`).FindString(string(made))
	if image == "" {
		t.Fatal("the release names no image")
	}
	return image
}

// fromNothing installs the release on both clusters, peers them and offloads a pod, and prints when each was done.
func fromNothing(t *testing.T, image string) {
	began := time.Now()
	reached := func(what string) { t.Logf("%.1f s from nothing to %s", time.Since(began).Seconds(), what) }
	both(func(c cluster) {
		if _, stderr, code := c.liqoctl(t, c.plainInstallation()...); code != 0 {
			t.Errorf("install on %s: exit code %d\n%s", c.name, code, stderr)
		}
	})
	reached("two installations")
	rome.must(t, "peer", "--remote-kubeconfig", milan.kubeconfig, "--gw-server-service-type", "NodePort")
	reached("peered clusters")
	rome.visits(t, "milan", "first")
	reached("a pod at the provider")
	peeringIsShown(t)
	for _, c := range []cluster{rome, milan} {
		c.pulled(t, image)
	}
}

// pulled expects that all pods of Liqo run the image, named by its digest.
func (c cluster) pulled(t *testing.T, image string) {
	t.Helper()
	const images = `jsonpath={range .items[*]}` +
		`{.metadata.namespace}/{.metadata.name} {.status.containerStatuses[*].imageID}{"\n"}{end}`
	pods := 0
	for pod := range strings.Lines(c.kubectl(t, "get", "pods", "-A", "-o", images)) {
		if !strings.HasPrefix(pod, "liqo") {
			continue
		}
		pods++
		for _, id := range strings.Fields(pod)[1:] {
			if id != image {
				t.Errorf("%s has an image other than %s: %s", c.name, image, pod)
			}
		}
	}
	if pods < 4 {
		t.Errorf("%s has %d pods of Liqo, want a controller, two of fabric, and a gateway", c.name, pods)
	}
}

// absentImage upgrades the provider to an image that the registry does not have. The upgrade ends by itself, says why,
// and is undone.
func absentImage(t *testing.T, image string) {
	absent := strings.Replace(image, "/liqo@", "/absent@", 1)
	name, _, _ := strings.Cut(absent, "@")
	began := time.Now()
	_, stderr, code := milan.liqoctl(t, append(milan.plainInstallation(), "--set", "image.name="+name)...)
	t.Logf("liqoctl ended after %.0f s:\n%s", time.Since(began).Seconds(), stderr)
	want := ` ERRO   upgrade Liqo: pod liqo/\S+: node milan-n[12] cannot get image "` + regexp.QuoteMeta(absent) +
		`" \(\w+: .*not found.*\); name one that nodes can pull`
	if code != 1 || !regexp.MustCompile(want).MatchString(stderr) {
		t.Errorf("exit code %d, want 1 and a line like %s", code, want)
	}
	milan.kubectl(t, "-n", "liqo", "rollout", "status", patiently,
		"deployment/liqo-controller-manager", "daemonset/liqo-fabric")
	milan.pulled(t, image)
	peeringIsShown(t)
	rome.hears(t, "first")
}
