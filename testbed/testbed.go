// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Testbed is where everything lies. Several testbeds with different directories do not
// see each other.
type Testbed struct {
	Dir   string // state, one folder per cluster; absolute
	Repo  string // root of the repository: sources of what is built
	Cache string // what is built: Kubernetes, CoreDNS, images
}

// openTestbed finds the repository above the working directory. An empty dir is
// .testbed in the repository.
func openTestbed(dir string) (Testbed, error) {
	repo, err := findRepo()
	if err != nil {
		return Testbed{}, err
	}
	if dir == "" {
		dir = filepath.Join(repo, ".testbed")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return Testbed{}, err
	}
	// Nodes have their own directories at these places, and overlay mounts cannot
	// express the characters.
	for _, hidden := range []string{"/run", "/var/lib", "/var/log", "/var/run", "/etc", "/proc", "/sys"} {
		if dir == hidden || strings.HasPrefix(dir, hidden+"/") {
			return Testbed{}, fmt.Errorf("directory %s lies below %s, which nodes replace; choose another with --dir", dir, hidden)
		}
	}
	if strings.ContainsAny(dir, ",:\\ \n") {
		return Testbed{}, fmt.Errorf("directory %q has a space or one of ',:\\'; choose another with --dir", dir)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return Testbed{}, fmt.Errorf("find the cache directory: %w; set HOME", err)
	}
	return Testbed{Dir: dir, Repo: repo, Cache: filepath.Join(cache, "liqo-testbed")}, nil
}

func findRepo() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "testbed", "kubernetes", "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no testbed/kubernetes/go.mod above %s: run this inside the repository", wd)
		}
	}
}

// id tells this testbed's namespaces and cgroups from those of others. It depends on
// nothing but the directory, so that they are found when the directory is lost.
func (t Testbed) id() string {
	s := sha256.Sum256([]byte(t.Dir))
	return hex.EncodeToString(s[:2])
}

func (t Testbed) clusterDir(c Cluster) string           { return filepath.Join(t.Dir, c.Name) }
func (t Testbed) nodeDir(c Cluster, node string) string { return filepath.Join(t.Dir, c.Name, node) }
func (t Testbed) pkiDir(c Cluster) string               { return filepath.Join(t.Dir, c.Name, "pki") }
func (t Testbed) kubeconfig(c Cluster) string           { return filepath.Join(t.Dir, c.Name, "kubeconfig") }

// binDir holds what users run: kubectl and this tool.
func (t Testbed) binDir() string { return filepath.Join(t.Dir, "bin") }

// clusters are those of the directory, by index.
func (t Testbed) clusters() ([]Cluster, error) {
	files, err := filepath.Glob(filepath.Join(t.Dir, "*", "cluster.json"))
	if err != nil {
		return nil, err
	}
	var all []Cluster
	for _, f := range files {
		var c Cluster
		b, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(b, &c)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w; remove the cluster with 'down --all'", f, err)
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Cluster) int { return a.Index - b.Index })
	return all, nil
}

// selectClusters are the named clusters, or all when there is no name.
func (t Testbed) selectClusters(names []string) ([]Cluster, error) {
	all, err := t.clusters()
	if err != nil || len(names) == 0 {
		return all, err
	}
	var chosen []Cluster
	for _, name := range names {
		i := slices.IndexFunc(all, func(c Cluster) bool { return c.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no cluster %q in %s; there are: %s", name, t.Dir, strings.Join(clusterNames(all), " "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func clusterNames(all []Cluster) []string {
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	return names
}

func (t Testbed) save(c Cluster) error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(t.clusterDir(c), "cluster.json"), append(b, '\n'), 0o644)
}

// lock keeps other commands of this testbed out until unlock. It ends with the process
// at the latest, so a crash leaves no lock behind.
func (t Testbed) lock() (unlock func(), err error) {
	for {
		if err := os.MkdirAll(t.Dir, 0o755); err != nil {
			return nil, err
		}
		f, err := lockDir(context.Background(), t.Dir, "another command of this testbed")
		if err != nil {
			return nil, err
		}
		if sameFile(f, t.Dir) {
			unlock = func() { f.Close() }
			if err := t.own(); err != nil {
				unlock()
				return nil, err
			}
			return unlock, nil
		}
		f.Close() // a 'down' removed the directory meanwhile
	}
}

// lockCache keeps all other testbeds from building and starting until the file is closed.
func (t Testbed) lockCache(ctx context.Context) (*os.File, error) {
	if err := os.MkdirAll(t.Cache, 0o755); err != nil {
		return nil, err
	}
	return lockDir(ctx, t.Cache, "the build or the start of another testbed")
}

// lockDir locks a directory until the file is closed. If it has to wait, it prints for what.
func lockDir(ctx context.Context, dir, holder string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for waited := false; ; waited = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		if !waited {
			fmt.Fprintf(os.Stderr, "waiting for %s to end (%s is locked)\n", holder, dir)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("wait for %s to end: %w", holder, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// own refuses a directory that holds something else: with the last cluster all of it is removed.
func (t Testbed) own() error {
	const everything = "*\n" // git shall ignore
	marker := filepath.Join(t.Dir, ".gitignore")
	entries, err := os.ReadDir(t.Dir)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return writeFile(marker, []byte(everything), 0o644)
	}
	if text, err := os.ReadFile(marker); err != nil || string(text) != everything {
		return fmt.Errorf("%s holds other things, which would be removed with the clusters; choose an empty directory with --dir", t.Dir)
	}
	return nil
}

func sameFile(f *os.File, name string) bool {
	a, errA := f.Stat()
	b, errB := os.Stat(name)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// installTools puts kubectl and a copy of this program into binDir. Nodes run the copy:
// "go run" removes the original when it ends.
func (t Testbed) installTools() error {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	tool := t.toolPath()
	if have, err := os.ReadFile(tool); err != nil || string(have) != string(self) {
		if err := writeFile(tool, self, 0o755); err != nil {
			return err
		}
	}
	link := filepath.Join(t.binDir(), "kubectl")
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(filepath.Join(t.Cache, defaultRelease().folder(), "kubectl"), link)
}

func (t Testbed) toolPath() string { return filepath.Join(t.binDir(), "testbed") }

// run executes a command and returns its output; its errors hold what it printed.
func run(cmd *exec.Cmd) (string, error) {
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// parallel runs all functions at once and joins their errors.
func parallel(functions ...func() error) error {
	errs := make([]error, len(functions))
	done := make(chan struct{})
	for i, f := range functions {
		go func() {
			errs[i] = f()
			done <- struct{}{}
		}()
	}
	for range functions {
		<-done
	}
	return errors.Join(errs...)
}
