// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/cli"
	"github.com/liqo-go/liqo/internal/apitest"
)

var update = flag.Bool("update", false, "rewrite the expected sessions of the stories")

// session is a story: what a user types and what appears.
//
//	$ liqoctl …            output and errors, in order; [1] when it fails
//	$ show FILE            a file liqoctl wrote below $DIR
//	$ apply rome FILE      objects of the archive's FILE, with their status, go to a cluster
type session struct {
	dir      string
	clusters map[string]*apitest.Server
}

// play runs the commands of a session and returns it with what they really print.
func (s *session) play(t *testing.T, archive *txtar.Archive) string {
	t.Helper()
	var out strings.Builder
	for _, line := range strings.Split(string(archive.Files[0].Data), "\n") {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		fmt.Fprintln(&out, line)
		words := strings.Fields(command)
		switch words[0] {
		case "liqoctl":
			out.WriteString(s.liqoctl(t, words))
		case "apply":
			s.apply(t, words[1], file(t, archive, words[2]))
		case "show":
			data, err := os.ReadFile(filepath.Join(s.dir, words[1]))
			if err != nil {
				t.Fatal(err)
			}
			out.Write(data)
		default:
			t.Fatalf("unknown command %q", line)
		}
	}
	return out.String()
}

// liqoctl runs one command; answers of the user follow "<".
func (s *session) liqoctl(t *testing.T, words []string) string {
	t.Helper()
	input := ""
	for i, word := range words {
		if word == "<" {
			words, input = words[:i], words[i+1]+"\n"
			break
		}
		words[i] = strings.ReplaceAll(word, "$DIR", s.dir)
	}
	var printed bytes.Buffer
	code := cli.Run(t.Context(), words, genericiooptions.IOStreams{In: strings.NewReader(input), Out: &printed, ErrOut: &printed})
	text := strings.ReplaceAll(printed.String(), s.dir, "$DIR")
	for name, cluster := range s.clusters {
		text = strings.ReplaceAll(text, cluster.Config.Host, "https://"+name)
	}
	if code != 0 {
		text += fmt.Sprintf("[%d]\n", code)
	}
	return text
}

func (s *session) apply(t *testing.T, cluster string, manifests []byte) {
	t.Helper()
	c, err := client.New(s.clusters[cluster].Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, manifest := range strings.Split(string(manifests), "---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
			t.Fatal(err)
		}
		status := object.Object["status"]
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatalf("create %s: %v", object.GetName(), err)
		}
		if status == nil {
			continue
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
		object.Object["status"] = status
		if err := c.Status().Update(t.Context(), object); err != nil {
			t.Fatalf("status of %s: %v", object.GetName(), err)
		}
	}
}

func file(t *testing.T, archive *txtar.Archive, name string) []byte {
	t.Helper()
	for _, f := range archive.Files {
		if f.Name == name {
			return f.Data
		}
	}
	t.Fatalf("no file %s in the story", name)
	return nil
}

// stories runs all stories of a folder.
func stories(t *testing.T, folder string, with func(t *testing.T) *session) {
	names, err := filepath.Glob("testdata/" + folder + "/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := with(t).play(t, archive)
			if *update {
				archive.Files[0].Data = []byte(got)
				if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(string(archive.Files[0].Data), got); diff != "" {
				t.Errorf("the session differs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestArguments: what goes wrong before any cluster is asked is one clear line.
func TestArguments(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	stories(t, "arguments", func(t *testing.T) *session { return &session{dir: t.TempDir()} })
}

// TestClusters: sessions with two real API servers. Nothing but liqoctl acts there.
func TestClusters(t *testing.T) {
	stories(t, "clusters", func(t *testing.T) *session {
		s := &session{dir: t.TempDir(), clusters: map[string]*apitest.Server{"rome": apitest.Start(t), "milan": apitest.Start(t)}}
		for name, cluster := range s.clusters {
			s.kubeconfig(t, name, cluster)
		}
		return s
	})
}

// kubeconfig writes $DIR/<name>.
func (s *session) kubeconfig(t *testing.T, name string, cluster *apitest.Server) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	tls := cluster.Config.TLSClientConfig
	config.Clusters[name] = &clientcmdapi.Cluster{Server: cluster.Config.Host, CertificateAuthorityData: tls.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: tls.CertData, ClientKeyData: tls.KeyData}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, filepath.Join(s.dir, name)); err != nil {
		t.Fatal(err)
	}
}
