// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apitest starts real API servers for tests: etcd and kube-apiserver as processes on
// loopback ports, with the CRDs of this repository. There is no controller manager and no
// node, so nothing but the code under test acts: namespaces stay Terminating, nothing is
// collected as garbage, nobody signs certificates.
//
// Start is the whole interface but for Load and Sign, which continue with what another cluster had.
// Servers are independent of each other, so a test starts one for each cluster it needs. The tests
// of a package take turns with servers: one that a test has returned is reset to its first state
// and handed to the next test, which saves the 4 s of a start (pool.go). Packages take turns, too,
// where their tests run below a process that shares servers (share.go). Tests may therefore run in
// parallel and name objects as they like.
package apitest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/liqo-go/liqo/internal/patience"
)

// KubernetesVersion is the version of the server binaries.
const KubernetesVersion = "v1.37.2"

// startTries is how often a start is tried if its processes end. Another process may take a free port
// before it is used, and on a busy machine kube-apiserver may give up during its start.
const startTries = 3

// init discards the log of controller-runtime, which warns in the output of tests if nobody takes it.
func init() { log.SetLogger(klog.Logger{}) }

// Server is one running API server.
type Server struct {
	// Config authenticates as a member of system:masters. Copy it before changing it.
	Config *rest.Config

	kill    func()
	stopped bool
	// log is the path of the log of kube-apiserver, which goes on over all its tests.
	log string
	// caKey is the PEM key of the authority that signs for clients and for the server itself.
	caKey []byte
	state state
	// returnedAt is when the last test returned it.
	returnedAt time.Time
	// lease is the connection to the process that shares the server; nil for a server of this
	// process.
	lease net.Conn
	// flags are further flags of kube-apiserver. A server with flags serves one test only.
	flags []string
}

// ConfigFor returns a configuration that authenticates as another user, with only the rights bound
// to it.
func (s *Server) ConfigFor(user string, groups ...string) *rest.Config {
	c := rest.CopyConfig(s.Config)
	c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return c
}

// Start returns a server with only the CRDs installed, for use until the test ends. It fails the
// test if the binaries are missing or the server does not start. A test that fails prints the last
// lines that the server wrote meanwhile. With further flags of kube-apiserver, tests play clusters
// that serve less; such a server is started for this test only.
func Start(t testing.TB, flags ...string) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	s, err := take(ctx, flags)
	if err != nil && ctx.Err() != nil {
		t.Fatal(patience.GaveUp("an API server", err))
	}
	if err != nil {
		t.Fatalf("start API server: %v", err)
	}
	begin := len(s.logged(0))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("kube-apiserver at %s wrote last:\n%s", s.Config.Host, ending(s.logged(begin)))
		}
		if err := give(s); err != nil {
			t.Logf("reset API server: %v", err)
		}
	})
	return s
}

// Stop ends the server before the test ends. Only the goroutine that uses the server calls it.
func (s *Server) Stop() {
	s.kill()
	if s.lease != nil {
		_ = s.lease.Close()
	}
	s.stopped = true
}

// launch starts a server and installs the CRDs. It retries if the processes end early.
func launch(ctx context.Context, flags []string) (*Server, error) {
	present := installed.Load()
	s, err := start(ctx, present, flags)
	for try := 1; err != nil && try < startTries && ctx.Err() == nil; try++ {
		fmt.Fprintf(os.Stderr, "start API server again: %v\n", err)
		s, err = start(ctx, present, flags)
	}
	if err != nil {
		return nil, err
	}
	now, err := installCRDs(ctx, s.Config, present)
	if err == nil && len(flags) > 0 {
		return s, nil // its first state is of no use to others
	}
	if err == nil {
		err = s.state.record(ctx, present)
	}
	if err != nil {
		s.Stop()
		return nil, err
	}
	if present == nil {
		now.stored = s.state.first
		installed.CompareAndSwap(nil, now)
	}
	return s, nil
}

// start starts a server that finds an installation in its etcd, if there is one.
func start(ctx context.Context, present *installation, flags []string) (_ *Server, err error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	root, err := workdir()
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	dir, err := os.MkdirTemp(root, "server")
	if err != nil {
		return nil, err
	}
	pki, err := writePKI(dir)
	if err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, fmt.Errorf("find free ports: %w", err)
	}
	ctx, ended := context.WithCancelCause(ctx)
	defer ended(nil)
	var kills []func()
	kill := sync.OnceFunc(func() {
		for _, kill := range slices.Backward(kills) {
			kill()
		}
	})
	defer func() {
		if err != nil {
			kill()
		}
	}()
	s := &Server{kill: kill, flags: flags, log: logFile(dir, "kube-apiserver"), caKey: pki.caKey, state: state{etcd: "http://" + loopback(ports[0])}, Config: &rest.Config{
		Host:            "https://" + loopback(ports[2]),
		TLSClientConfig: rest.TLSClientConfig{CAData: pki.ca, CertData: pki.clientCert, KeyData: pki.clientKey},
		// The client of a test has no rate limit.
		QPS: -1,
	}}
	spawn := func(program string, args []string) error {
		end, err := run(ended, dir, append([]string{filepath.Join(bin, program)}, args...)...)
		if err == nil {
			kills = append(kills, end)
		}
		return err
	}
	if err := spawn("etcd", etcdArgs(dir, ports[0], ports[1])); err != nil {
		return nil, err
	}
	if present != nil {
		if err := s.state.seed(ctx, present); err != nil {
			return nil, fmt.Errorf("etcd: %s\n%w", tail(dir, "etcd"), err)
		}
	}
	if err := spawn("kube-apiserver", append(apiServerArgs(dir, ports[0], ports[2]), flags...)); err != nil {
		return nil, err
	}
	return s, waitReady(ctx, s.Config, dir)
}

func etcdArgs(dir string, client, peer int) []string {
	clientURL, peerURL := "http://"+loopback(client), "http://"+loopback(peer)
	return []string{
		"--data-dir=" + filepath.Join(dir, "etcd"),
		"--listen-client-urls=" + clientURL,
		"--advertise-client-urls=" + clientURL,
		"--listen-peer-urls=" + peerURL,
		"--initial-advertise-peer-urls=" + peerURL,
		"--initial-cluster=default=" + peerURL,
		"--unsafe-no-fsync",
		"--max-txn-ops=100000", // a reset is one transaction
	}
}

func apiServerArgs(dir string, etcd, port int) []string {
	serviceAccountKey := filepath.Join(dir, serviceAccountKeyFile)
	return []string{
		"--etcd-servers=http://" + loopback(etcd),
		"--bind-address=127.0.0.1",
		// The advertised address must not be the machine's own, which may lie in a range that tests
		// use.
		"--advertise-address=192.0.2.1",
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + filepath.Join(dir, serverCertFile),
		"--tls-private-key-file=" + filepath.Join(dir, serverKeyFile),
		"--client-ca-file=" + filepath.Join(dir, caFile),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + serviceAccountKey,
		"--service-account-signing-key-file=" + serviceAccountKey,
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=RBAC",
		// A controller that does not run here would make the service accounts that this plugin
		// requires.
		"--disable-admission-plugins=ServiceAccount",
		"--allow-privileged",
	}
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// freePorts holds all ports open at once, so that they differ.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", loopback(0))
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// run starts a process that writes to <dir>/<name>.log and lives until kill is called or this
// process ends. It calls ended when the process ends, for whatever reason.
func run(ended context.CancelCauseFunc, dir string, command ...string) (kill func(), err error) {
	log, err := os.Create(logFile(dir, filepath.Base(command[0])))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	release, err := confine(cmd)
	if err != nil {
		return nil, err
	}
	defer release()
	// A server that collects garbage less often takes a tenth less CPU to start, and 100 MB more. The
	// limit keeps it from 800 MB later, because up to 20 run at once.
	cmd.Env = append(os.Environ(), "GOGC=400", "GOMEMLIMIT=400MiB")
	if err := onLastingThread(cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", command[0], err)
	}
	done := make(chan struct{})
	go func() {
		ended(fmt.Errorf("%s ended: %w", command[0], cmd.Wait()))
		close(done)
	}()
	return func() {
		_ = cmd.Process.Kill() // fails only if it has ended already
		<-done
	}, nil
}

// onLastingThread calls f on a thread that ends with this process. A process with a parent death
// signal ends with the thread that started it, and a thread ends with a goroutine that stays locked
// to it, as those do that enter namespaces.
func onLastingThread(f func() error) error {
	done := make(chan error)
	lastingThread() <- func() { done <- f() }
	return <-done
}

var lastingThread = sync.OnceValue(func() chan<- func() {
	calls := make(chan func())
	go func() {
		runtime.LockOSThread()
		for call := range calls {
			call()
		}
	}()
	return calls
})

func logFile(dir, name string) string { return filepath.Join(dir, name+".log") }

func waitReady(ctx context.Context, config *rest.Config, dir string) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	err = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
	})
	if err != nil {
		return fmt.Errorf("etcd: %s\nkube-apiserver: %s\nwait for /readyz: %w",
			tail(dir, "etcd"), tail(dir, "kube-apiserver"), context.Cause(ctx))
	}
	return nil
}

// logged returns what the server has written, without what it had written up to an offset.
func (s *Server) logged(begin int) string {
	b, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(b[min(begin, len(b)):])
}

// tail returns the end of a log, for a server that did not start.
func tail(dir, name string) string {
	b, err := os.ReadFile(logFile(dir, name))
	if err != nil {
		return err.Error()
	}
	return ending(string(b))
}

// ending returns the last 4000 bytes of a text, the last twenty lines or so.
func ending(text string) string { return text[max(0, len(text)-4000):] }
