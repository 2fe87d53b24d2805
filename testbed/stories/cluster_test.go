// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stories holds what users do, on two real clusters with the same pod and service
// addresses. The stories type the commands a user types and look at what is printed.
package stories

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/testbed/stories/alone"
)

var (
	// keep leaves the clusters running, for the next run to start from.
	keep = flag.Bool("keep", false, "leave the clusters running")
	// cni is the pod network of the pair.
	cni = flag.String("cni", "bridge", "pod network of the pair")
	// kubernetes gives clusters a version of Kubernetes other than the default, which is built if it is missing.
	kubernetes = flag.String("kubernetes", "", "version of Kubernetes: 1.36, or rome=1.35,milan=1.37")
	// pair names the folder below bin/ with the state of the clusters. Runs side by side have one each.
	pair = flag.String("pair", "stories", "which pair of clusters: a folder below bin/")
	// load gives nodes the image that 'make image' built. Without it they have none of Liqo.
	load = flag.Bool("load", true, "load bin/liqo-image.tar into the nodes")
	// rows loads what only rows of docs/pods.md need: metrics-server and a driver of devices.
	rows = flag.Bool("rows", true, "run metrics-server and have a driver of devices, compiled if they are missing")
)

// cluster is one of the test clusters as a user has it: a name and a kubeconfig.
type cluster struct {
	name, kubeconfig, api string
	// pods are its pod CIDRs.
	pods []string
	// server is its API server as the tests reach it, and web shows it the administrator's certificate.
	server string
	web    *http.Client
}

// patiently makes kubectl and liqoctl wait as long as tests do.
var patiently = "--timeout=" + patience.Limit.String()

// bed is what all stories share. It is set once, by TestMain.
var (
	root           string // of the repository
	dir            string // state of the clusters
	path           string // PATH with kubectl and liqoctl
	testbedBinary  string
	rome, milan    cluster
	beside         *alone.Lock // shared by runs of stories on one machine
	kubernetesPath = "kubernetes-v1.37.2"
)

const (
	podCIDR  = "10.10.0.0/16"
	services = "10.110.0.0/16"
	// shortLived makes all certificates that clusters sign end after ten minutes.
	shortLived = "--kcm-arg=--cluster-signing-duration=10m"
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		if !*keep {
			_ = tearDown()
		}
		os.Exit(1)
	}()
	if err := setUp(); err != nil {
		fmt.Fprintln(os.Stderr, "set up clusters:", err)
		tearDown()
		return 1
	}
	code := m.Run()
	if !*keep {
		if err := tearDown(); err != nil {
			fmt.Fprintln(os.Stderr, "remove clusters:", err)
			return 1
		}
	}
	return code
}

// setUp builds the program for test clusters. It goes on with clusters that -keep left, if it knows what they have.
func setUp() error {
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	root = filepath.Dir(filepath.Dir(wd))
	dir = filepath.Join(root, "bin", *pair)
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	path = strings.Join([]string{filepath.Join(root, "bin"), filepath.Join(cache, "liqo-testbed", kubernetesPath), os.Getenv("PATH")}, ":")
	testbedBinary = filepath.Join(root, "bin", "testbed")
	if out, err := exec.Command("go", "build", "-o", testbedBinary, filepath.Join(root, "testbed")).CombinedOutput(); err != nil {
		return fmt.Errorf("build testbed: %w\n%s", err, out)
	}
	if beside, err = alone.Share(filepath.Join(root, "bin", "stories.lock")); err != nil {
		return err
	}
	left, err := readState()
	if err != nil {
		return err
	}
	if left == unknown {
		return renew()
	}
	return start()
}

// renew replaces the clusters by new ones, which have nothing.
func renew() error {
	if err := tearDown(); err != nil {
		return err
	}
	if err := start(); err != nil {
		return err
	}
	return writeState(nothing)
}

// start starts what is not running of the clusters.
func start() (err error) {
	up := []string{"--clusters", "rome,milan", "--nodes", "2", "--cni", *cni, "--image", "shell", shortLived}
	for _, version := range strings.FieldsFunc(*kubernetes, func(r rune) bool { return r == ',' }) {
		up = append(up, "--kubernetes", version)
	}
	if *rows {
		up = append(up, "--image", "metrics-server", "--image", "devices")
	}
	if *load {
		image := filepath.Join(root, "bin", "liqo-image.tar")
		if _, err := os.Stat(image); err != nil {
			return fmt.Errorf("run 'make image' first: %w", err)
		}
		up = append(up, "--image", image)
	}
	if out, err := testbed("up", up...); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	rome, err = known("rome")
	if err != nil {
		return err
	}
	milan, err = known("milan")
	if err != nil {
		return err
	}
	var versions [2]struct{ GitVersion string }
	if err := errors.Join(rome.read("/version", &versions[0]), milan.read("/version", &versions[1])); err != nil {
		return err
	}
	fmt.Printf("clusters run: rome %s, milan %s\n", versions[0].GitVersion, versions[1].GitVersion) // read by testbed/versions
	return nil
}

// minor is the minor version of the cluster's Kubernetes.
func (c cluster) minor(t *testing.T) (minor int) {
	t.Helper()
	var version struct{ Minor string }
	if err := c.read("/version", &version); err != nil {
		t.Fatal(err)
	}
	minor, err := strconv.Atoi(version.Minor)
	if err != nil {
		t.Fatal(err)
	}
	return minor
}

// known asks a cluster where its API server is on the network that clusters share.
func known(name string) (cluster, error) {
	c := cluster{name: name, kubeconfig: filepath.Join(dir, name, "kubeconfig"), pods: []string{podCIDR}}
	addr, _, err := command("kubectl", "--kubeconfig", c.kubeconfig, "get", "endpointslices", "kubernetes",
		"-o", "jsonpath={.endpoints[0].addresses[0]}:{.ports[0].port}")
	if err != nil {
		return c, err
	}
	c.api = "https://" + addr
	if c.server, _, err = command("kubectl", "--kubeconfig", c.kubeconfig, "config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"); err != nil {
		return c, err
	}
	pki := filepath.Join(dir, name, "pki")
	admin, err := tls.LoadX509KeyPair(filepath.Join(pki, "admin.crt"), filepath.Join(pki, "admin.key"))
	if err != nil {
		return c, err
	}
	ca, err := os.ReadFile(filepath.Join(pki, "ca.crt"))
	if err != nil {
		return c, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	c.web = &http.Client{
		Timeout:   5 * time.Second, // API servers are stopped at times
		Transport: &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{admin}, RootCAs: roots}},
	}
	return c, nil
}

// read asks the API server without kubectl, for what is asked again and again while a time is taken: to start
// kubectl costs more than most of what is watched.
func (c cluster) read(path string, into any) error {
	response, err := c.web.Get(c.server + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(into)
}

func tearDown() error {
	out, err := testbed("down", "--all")
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func testbed(verb string, args ...string) (string, error) {
	out, err := exec.Command(testbedBinary, append([]string{verb, "--dir", dir}, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("testbed %s: %w", verb, err)
	}
	return string(out), err
}

// command runs a program as a user would. It ends a program that takes far too long: a minute more than
// kubectl waits, so that kubectl can say what it waited for.
func command(name string, args ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience.Limit+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, find(name), args...)
	cmd.Env = append(os.Environ(), "PATH="+path, "KUBECONFIG=")
	var outbuf, errbuf bytes.Buffer
	cmd.Stdout, cmd.Stderr = &outbuf, &errbuf
	if err = cmd.Run(); ctx.Err() != nil {
		err = fmt.Errorf("ended after %s: %w", patience.Limit+time.Minute, err)
	}
	return outbuf.String(), errbuf.String(), err
}

// find looks a program up in the stories' own PATH.
func find(name string) string {
	for _, folder := range strings.Split(path, ":") {
		if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
			return filepath.Join(folder, name)
		}
	}
	return name
}

// kubectl runs kubectl on the cluster and fails the test when kubectl fails.
func (c cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, err := command("kubectl", append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
	if err != nil {
		fatal(t, "%s%s\n%s: kubectl %s: %v: %s", stdout, stderr, c.name, strings.Join(args, " "), err, lastLine(stderr))
	}
	return strings.TrimSpace(stdout)
}

// liqoctl runs liqoctl on the cluster and gives both streams and the exit code.
func (c cluster) liqoctl(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	stdout, stderr, err := command("liqoctl", append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
	stderr = waits.ReplaceAllString(stderr, "")
	if exit, ok := err.(*exec.ExitError); ok {
		return stdout, stderr, exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return stdout, stderr, 0
}

// waits matches the lines about what takes long, which a busy machine makes liqoctl print.
var waits = regexp.MustCompile(` WAIT   .*\n`)

// must runs liqoctl, which waits as long as tests do, and fails the test when liqoctl fails. The
// verbs info and move have no limit.
func (c cluster) must(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	if args[0] != "info" && args[0] != "move" {
		args = append(slices.Clone(args), patiently)
	}
	stdout, stderr, code := c.liqoctl(t, args...)
	if code != 0 {
		fatal(t, "%s%s\n%s: liqoctl %s: exit code %d: %s", stdout, stderr, c.name, strings.Join(args, " "), code, lastLine(stderr))
	}
	return stdout, stderr
}

// apply creates or changes what a manifest says.
func (c cluster) apply(t *testing.T, manifest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "apply", "-f", file)
}

// eventually asks until the answer is as wanted; the answer of a failing command is its error. The interval
// grows with the wait, because each start of kubectl takes 0.25 s of CPU from other stories.
func eventually(t *testing.T, what string, ask func() (string, bool)) string {
	t.Helper()
	limit, pause := time.After(patience.Limit), 200*time.Millisecond
	for {
		answer, ok := ask()
		if ok {
			return answer
		}
		select {
		case <-limit:
			fatal(t, "last answer:\n%s\nwaited %s in vain: %s; last answer: %s", answer, patience.Limit, what, lastLine(answer))
		case <-time.After(pause):
		}
		pause = min(pause+pause/20, 5*time.Second)
	}
}

// why is the last line about the story that gave up, or empty. One story runs at a time.
var why atomic.Value

// fatal ends the test. Its last line is also that of its story, after what dumpFailed and other
// cleanups print.
func fatal(t *testing.T, format string, args ...any) {
	t.Helper()
	text := fmt.Sprintf(format, args...)
	why.Store(lastLine(text))
	t.Fatal(text)
}

// saysWhyLast makes the line that fatal stores the last one of a story. It is called before other
// cleanups are registered.
func saysWhyLast(t *testing.T) {
	why.Store("")
	t.Cleanup(func() {
		if line := why.Load(); line != "" {
			t.Log(line)
		}
	})
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}

// echo runs the echo program in a pod until it succeeds, and returns what it prints. A busy machine
// delays some answers for longer than the program waits, and loses some packets.
func (c cluster) echo(t *testing.T, namespace, pod string, args ...string) string {
	t.Helper()
	what := fmt.Sprintf("in the pod %s/%s of %s, /echo %s succeeds", namespace, pod, c.name, strings.Join(args, " "))
	return eventually(t, what, func() (string, bool) {
		out, err := c.ask(slices.Concat([]string{"-n", namespace, "exec", pod, "--", "/echo"}, args)...)
		return out, err == nil
	})
}

// ask runs kubectl and gives what it prints, or its error.
func (c cluster) ask(args ...string) (string, error) {
	stdout, stderr, err := command("kubectl", append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
	if err != nil {
		return stderr, err
	}
	return strings.TrimSpace(stdout), nil
}

// replace deletes an object that somebody makes anew at once, and waits until another has its name. kubectl
// is not told to wait: it compares the UID once before it watches, and waits for the end of the new object
// where that comes in between.
func (c cluster) replace(t *testing.T, namespace, object string) {
	t.Helper()
	uid := c.kubectl(t, "-n", namespace, "get", object, "-o", "jsonpath={.metadata.uid}")
	c.kubectl(t, "-n", namespace, "delete", object, "--wait=false")
	eventually(t, object+" is made anew", func() (string, bool) {
		got, err := c.ask("-n", namespace, "get", object, "-o", "jsonpath={.metadata.uid}")
		return got, err == nil && got != uid
	})
}

// both does the same on both clusters at once.
func both(do func(c cluster)) {
	var wg sync.WaitGroup
	for _, c := range []cluster{rome, milan} {
		wg.Go(func() { do(c) })
	}
	wg.Wait()
}

// typed runs kubectl on rome with input, and gives what it printed.
func typed(t *testing.T, input string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, find("kubectl"), append([]string{"--kubeconfig", rome.kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// dumpFailed prints what one would look at first if a story failed.
func dumpFailed(t *testing.T) {
	if !t.Failed() {
		return
	}
	for _, c := range []cluster{rome, milan} {
		for _, args := range [][]string{
			{"get", "pods", "-A", "-o", "wide"},
			{"get", "liqo", "-A"},
			{"get", "events", "-A", "--sort-by=.lastTimestamp", "--field-selector", "type!=Normal"},
			{"-n", "liqo", "logs", "deployment/liqo-controller-manager", "--tail=60"},
		} {
			out, _ := c.ask(args...)
			t.Logf("%s: kubectl %s\n%s", c.name, strings.Join(args, " "), out)
		}
	}
}
