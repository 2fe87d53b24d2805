// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	release "helm.sh/helm/v4/pkg/release/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/cli"
	"github.com/liqo-go/liqo/deploy"
	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/patience"
)

// newSession starts clusters and writes their kubeconfigs to $DIR/<name>, to $DIR/<name>-elsewhere
// with another address, and to $DIR/<name>-exec with a command that prints the credentials.
func newSession(t *testing.T, names ...string) *session {
	t.Helper()
	s := &session{dir: t.TempDir(), clusters: map[string]*apitest.Server{}, hanging: map[string]string{}}
	for _, name := range names {
		s.clusters[name] = apitest.Start(t)
		cluster, user := s.admin(name)
		s.kubeconfig(t, name, cluster, user)
		s.kubeconfig(t, name+"-exec", cluster, s.printed(t, name, user))
		cluster.Server, cluster.TLSServerName = strings.Replace(cluster.Server, "127.0.0.1", "localhost", 1), "127.0.0.1"
		s.kubeconfig(t, name+"-elsewhere", cluster, user)
	}
	return s
}

// admin returns the credentials of a cluster's administrator.
func (s *session) admin(name string) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) {
	config := s.clusters[name].Config
	return &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData},
		&clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
}

// kubeconfig writes $DIR/<name>.
func (s *session) kubeconfig(t *testing.T, name string, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters[name], config.AuthInfos[name] = cluster, user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, filepath.Join(s.dir, name)); err != nil {
		t.Fatal(err)
	}
}

// printed returns a user whose credentials a command prints, as 'aws eks get-token' does.
func (s *session) printed(t *testing.T, name string, user *clientcmdapi.AuthInfo) *clientcmdapi.AuthInfo {
	t.Helper()
	version := clientauthenticationv1.SchemeGroupVersion.String()
	s.keep(t, name+"-credentials", raw(t, map[string]any{"apiVersion": version, "kind": "ExecCredential", "status": map[string]any{
		"clientCertificateData": string(user.ClientCertificateData), "clientKeyData": string(user.ClientKeyData),
	}}))
	return &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{APIVersion: version, Command: "cat",
		Args: []string{filepath.Join(s.dir, name+"-credentials")}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode}}
}

// hang opens a port that accepts connections and never answers, like a hanging API server.
func (s *session) hang(t *testing.T, name string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // the test is over
	cluster, user := s.admin(name)
	s.hanging[name] = listener.Addr().String()
	cluster.Server = "https://" + s.hanging[name]
	s.kubeconfig(t, name+"-hanging", cluster, user)
}

// proxy waits until the control plane of a cluster reaches milan through a URL, or directly.
func (s *session) proxy(t *testing.T, cluster, wanted string) {
	t.Helper()
	secret := &corev1.Secret{}
	waitUntil(t, "the proxy is "+wanted, func(ctx context.Context) (bool, error) {
		name := client.ObjectKey{Namespace: "liqo-tenant-milan", Name: "kubeconfig-controlplane-milan"}
		if err := s.client(t, cluster).Get(ctx, name, secret); err != nil {
			return false, err
		}
		config, err := clientcmd.Load(secret.Data[api.KubeconfigField])
		return err == nil && cmp.Or(config.Clusters["milan"].ProxyURL, "none") == wanted, err
	})
}

// become points a kubeconfig of liqoctl to an API server of the test. That one does not trust the
// signer of the certificate, so the administrator impersonates the certificate's user and group.
func (s *session) become(t *testing.T, name, file string) {
	t.Helper()
	config, err := clientcmd.Load(s.read(t, file))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].ClientCertificateData)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	cluster, user := s.admin(name)
	user.Impersonate, user.ImpersonateGroups = certificate.Subject.CommonName, append(certificate.Subject.Organization, "system:authenticated")
	context := config.Contexts[config.CurrentContext]
	config.Clusters[context.Cluster], config.AuthInfos[context.AuthInfo] = cluster, user
	if err := clientcmd.WriteToFile(*config, filepath.Join(s.dir, file)); err != nil {
		t.Fatal(err)
	}
}

// enter stores a kubeconfig as that of a cluster's control plane for a provider.
func (s *session) enter(t *testing.T, cluster, provider string, kubeconfig []byte) {
	t.Helper()
	s.apply(t, cluster, raw(t, map[string]any{
		"apiVersion": "v1", "kind": "Secret", "stringData": map[string]any{api.KubeconfigField: string(kubeconfig)},
		"metadata": map[string]any{
			"name": api.KubeconfigSecretName(api.ControlPlaneIdentityName(provider)), "namespace": api.TenantNamespace(provider),
			"labels": map[string]any{api.LabelIdentityType: string(authv1beta1.IdentityControlPlane), api.LabelRemoteClusterID: provider},
		},
	}))
}

func (s *session) client(t *testing.T, name string) client.Client {
	t.Helper()
	c, err := client.New(s.clusters[name].Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func decode(t *testing.T, manifests []byte) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for _, manifest := range strings.Split("\n"+string(manifests), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
			t.Fatalf("%v in\n%s", err, manifest)
		}
		if len(object.Object) > 0 {
			out = append(out, object)
		}
	}
	return out
}

// apply creates objects or merges into those that exist, and sets their status.
func (s *session) apply(t *testing.T, cluster string, manifests []byte) {
	t.Helper()
	c := s.client(t, cluster)
	for _, object := range decode(t, manifests) {
		status := object.Object["status"]
		err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object.DeepCopy())
		if apierrors.IsNotFound(err) {
			err = c.Create(t.Context(), object)
		} else if err == nil {
			err = c.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", raw(t, object.Object)))
		}
		if err != nil {
			t.Fatalf("apply %s: %v", object.GetName(), err)
		}
		if status == nil {
			continue
		}
		change := raw(t, map[string]any{"status": status})
		if err := c.Status().Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", change)); err != nil {
			t.Fatalf("status of %s: %v", object.GetName(), err)
		}
	}
}

func raw(t *testing.T, content map[string]any) []byte {
	t.Helper()
	out, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ready waits for the condition of objects that has this name.
func (s *session) ready(t *testing.T, cluster string, manifests []byte) {
	t.Helper()
	for _, object := range decode(t, manifests) {
		waitUntil(t, object.GetName()+" is Ready", func(ctx context.Context) (bool, error) {
			err := s.client(t, cluster).Get(ctx, client.ObjectKeyFromObject(object), object)
			conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
			return slices.ContainsFunc(conditions, func(c any) bool {
				return c.(map[string]any)["type"] == "Ready" && c.(map[string]any)["status"] == "True"
			}), err
		})
	}
}

// served waits until a cluster's clients find a resource, group/version/plural: the discovery
// follows its definition a moment later.
func (s *session) served(t *testing.T, cluster, resource string) {
	t.Helper()
	at := strings.Split(resource, "/")
	waitUntil(t, resource+" is served", func(context.Context) (bool, error) {
		_, err := s.client(t, cluster).RESTMapper().KindFor(schema.GroupVersionResource{Group: at[0], Version: at[1], Resource: at[2]})
		return err == nil, nil
	})
}

// docs runs the commands below a heading of a page, in $DIR, with the kubeconfigs $ROME and $MILAN.
func (s *session) docs(t *testing.T, page, heading string) {
	t.Helper()
	text := pages(t)["../docs/"+page]
	_, section, ok := strings.Cut(text, "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no heading %s", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience.Limit, fmt.Errorf("it has not ended within %s", patience.Limit))
	defer cancel()
	for _, b := range blocksOf(t, page, section, "console") {
		cmd := exec.CommandContext(ctx, "bash", "-euc", b.text)
		cmd.WaitDelay = time.Second // a command of bash may survive it and keep the output open
		cmd.Dir = s.dir
		cmd.Env = append(os.Environ(), "ROME="+filepath.Join(s.dir, "rome"), "MILAN="+filepath.Join(s.dir, "milan"),
			"PATH="+filepath.Dir(binary(t, "kubectl"))+string(os.PathListSeparator)+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s printed\n%s%s: %v", b, out, b, cmp.Or(context.Cause(ctx), err))
		}
	}
}

// expire lets the time of the next command pass when it has printed a text, on a slow machine as on
// a fast one. If a cluster and a file precede the text, the objects in the file exist by then.
func (s *session) expire(t *testing.T, archive *txtar.Archive, words []string) {
	t.Helper()
	begun := func() error { return nil }
	if cluster := words[0]; s.clusters[cluster] != nil {
		c, name, objects := s.client(t, cluster), words[1], decode(t, s.file(t, archive, words[1]))
		words = words[2:]
		begun = func() error {
			for _, object := range objects {
				if err := exists(t.Context(), c, object); err != nil {
					return fmt.Errorf("waited until the objects in %s exist in %s: %s: %w", name, cluster, object.GetName(), err)
				}
			}
			return nil
		}
	}
	ctx, end := context.WithCancelCause(t.Context())
	s.limited, s.once = ctx, reaction{strings.Join(words, " "), func() { end(cmp.Or(begun(), cli.ErrTimeout)) }}
}

// exists waits until an object exists.
func exists(ctx context.Context, c client.Client, object client.Object) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
		return err == nil, client.IgnoreNotFound(err)
	})
}

// gone waits until objects do not exist.
func (s *session) gone(t *testing.T, cluster string, manifests []byte) {
	t.Helper()
	for _, object := range decode(t, manifests) {
		waitUntil(t, object.GetName()+" is gone", func(ctx context.Context) (bool, error) {
			err := s.client(t, cluster).Get(ctx, client.ObjectKeyFromObject(object), object)
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
	}
}

func (s *session) delete(t *testing.T, cluster string, manifests []byte) {
	t.Helper()
	for _, object := range decode(t, manifests) {
		if err := s.client(t, cluster).Delete(t.Context(), object); err != nil {
			t.Fatalf("delete %s: %v", object.GetName(), err)
		}
	}
}

// spec returns the spec of an object as YAML.
func (s *session) spec(t *testing.T, cluster string, manifest []byte) string {
	t.Helper()
	object := decode(t, manifest)[0]
	if err := s.client(t, cluster).Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	out, err := yaml.Marshal(object.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// left lists the objects of Liqo, and the namespaces with the label of a peer.
func (s *session) left(t *testing.T, cluster string) string {
	t.Helper()
	out := ""
	for _, item := range append(s.list(t, cluster, "v1", "Namespace", client.HasLabels{api.LabelRemoteClusterID}),
		s.ofLiqo(t, cluster)...) {
		if !strings.HasPrefix(item.GetAPIVersion(), "ipam.liqo.io/") {
			out += item.GetKind() + " " + strings.TrimPrefix(item.GetNamespace()+"/"+item.GetName(), "/") + "\n"
		}
	}
	return out
}

// list returns the objects of a kind.
func (s *session) list(t *testing.T, cluster, apiVersion, kind string, opts ...client.ListOption) []unstructured.Unstructured {
	t.Helper()
	found := &unstructured.UnstructuredList{}
	found.SetAPIVersion(apiVersion)
	found.SetKind(kind + "List")
	if err := s.client(t, cluster).List(t.Context(), found, opts...); err != nil {
		t.Fatal(err)
	}
	return found.Items
}

// ofLiqo returns the objects of Liqo.
func (s *session) ofLiqo(t *testing.T, cluster string) (out []unstructured.Unstructured) {
	t.Helper()
	crds, err := deploy.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		out = append(out, s.list(t, cluster, crd.Spec.Group+"/"+crd.Spec.Versions[0].Name, crd.Spec.Names.Kind)...)
	}
	return out
}

// unchanged fails if objects differ from those at the time of the last call for the cluster.
func (s *session) unchanged(t *testing.T, cluster string) {
	t.Helper()
	now := map[string]string{}
	for _, item := range slices.Concat(s.ofLiqo(t, cluster), s.list(t, cluster, "v1", "Namespace"), s.list(t, cluster, "v1", "Secret"),
		s.list(t, cluster, "rbac.authorization.k8s.io/v1", "RoleBinding"),
		s.list(t, cluster, "certificates.k8s.io/v1", "CertificateSigningRequest")) {
		now[item.GetKind()+" "+item.GetNamespace()+"/"+item.GetName()] = string(item.GetUID()) + " " + item.GetResourceVersion()
	}
	if before := s.versions[cluster]; before != nil && !maps.Equal(before, now) {
		t.Errorf("objects of %s have changed from %v to %v", cluster, before, now)
	}
	s.versions = map[string]map[string]string{cluster: now}
}

// keys creates the key pair of a cluster for a peer.
func (s *session) keys(t *testing.T, cluster, peer string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	data := map[string]any{}
	for name, encode := range map[string]func() ([]byte, error){
		api.PrivateKeyField: func() ([]byte, error) { return plan.EncodePrivateKey(private) },
		api.PublicKeyField:  func() ([]byte, error) { return plan.EncodePublicKey(public) },
	} {
		encoded, err := encode()
		if err != nil {
			t.Fatal(err)
		}
		data[name] = string(encoded)
	}
	s.apply(t, cluster, raw(t, map[string]any{
		"apiVersion": "v1", "kind": "Secret", "stringData": data,
		"metadata": map[string]any{"name": api.PeerKeysSecretName(api.TenantNamespace(peer)), "namespace": api.Namespace},
	}))
}

// certify writes a certificate for a Tenant's request to its status, signed by a new authority.
func (s *session) certify(t *testing.T, cluster string, manifest []byte) {
	t.Helper()
	object := decode(t, manifest)[0]
	if err := s.client(t, cluster).Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	tenant := &authv1beta1.Tenant{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, tenant); err != nil {
		t.Fatal(err)
	}
	request, err := plan.ParseRequest(tenant.Spec.CSR)
	if err != nil {
		t.Fatal(err)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: request.Subject, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, request.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	s.apply(t, cluster, raw(t, map[string]any{
		"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(),
		"metadata": map[string]any{"name": object.GetName(), "namespace": object.GetNamespace()},
		"status": map[string]any{"tenantNamespace": object.GetNamespace(), "authParams": map[string]any{
			"apiServer": "https://203.0.113.7:6443", "signedCRT": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		}},
	}))
}

// roles applies the roles of the chart for other clusters, with their admission policies.
func roles(t *testing.T) []byte {
	t.Helper()
	files, err := deploy.ChartFiles()
	if err != nil {
		t.Fatal(err)
	}
	var buffered []*archive.BufferedFile
	for _, name := range slices.Sorted(maps.Keys(files)) {
		buffered = append(buffered, &archive.BufferedFile{Name: name, Data: files[name]})
	}
	chart, err := loader.LoadFiles(buffered)
	if err != nil {
		t.Fatal(err)
	}
	run := action.NewInstall(action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler)))
	run.ReleaseName, run.Namespace, run.DryRunStrategy = api.ReleaseName, api.Namespace, action.DryRunClient
	run.KubeVersion = &common.KubeVersion{Version: apitest.KubernetesVersion}
	rel, err := run.Run(chart, map[string]any{"ipam": map[string]any{"podCIDRs": []any{"10.0.0.0/16"}, "serviceCIDR": "10.96.0.0/16"}})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, object := range decode(t, []byte(rel.(*release.Release).Manifest)) {
		peeringUser := object.GetLabels()[api.LabelAppComponent] == api.AppComponentPeeringUser
		if peeringUser || strings.HasPrefix(object.GetName(), "liqo-peer-") || slices.Contains([]string{api.ClusterRoleRemoteControlPlane, api.ClusterRoleVirtualKubeletRemote,
			api.ClusterRoleVirtualKubeletRemoteClusterWide}, object.GetName()) {
			out = append(out, string(raw(t, object.Object)))
		}
	}
	if len(out) != 25 {
		t.Fatalf("%d roles and policies of others, want 25", len(out))
	}
	return []byte(strings.Join(out, "\n---\n"))
}

// kubernetes runs the controllers that empty namespaces and sign certificates, and returns when
// they have signed one.
func (s *session) kubernetes(t *testing.T, cluster string) {
	t.Helper()
	certificate, key := filepath.Join(s.dir, "signer.crt"), filepath.Join(s.dir, "signer.key")
	signer, private := s.clusters[cluster].Authority()
	for path, data := range map[string][]byte{certificate: signer, key: private} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(binary(t, "kube-controller-manager"), "--kubeconfig="+filepath.Join(s.dir, cluster), "--leader-elect=false", "--secure-port=0",
		"--controllers=namespace-controller,certificatesigningrequest-signing-controller",
		"--cluster-signing-cert-file="+certificate, "--cluster-signing-key-file="+key)
	log, err := os.Create(filepath.Join(s.dir, "controllers.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails only when it has ended already
		_ = cmd.Wait()
		if t.Failed() {
			log := s.read(t, "controllers.log")
			t.Logf("kube-controller-manager: %s", log[max(0, len(log)-2000):])
		}
	})
	s.awaitSigner(t, cluster)
}

// awaitSigner waits until Kubernetes has signed a request, then deletes it.
func (s *session) awaitSigner(t *testing.T, cluster string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	content, err := plan.NewRequest(private, plan.ControlPlaneSubject("nobody"))
	if err != nil {
		t.Fatal(err)
	}
	c, ctx := s.client(t, cluster), t.Context()
	request := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "first"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: content, SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
	}}
	if err := c.Create(ctx, request); err != nil {
		t.Fatal(err)
	}
	request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
	if err := c.SubResource("approval").Update(ctx, request); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "Kubernetes signs", func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(request), request)
		return len(request.Status.Certificate) > 0, err
	})
	if err := c.Delete(ctx, request); err != nil {
		t.Fatal(err)
	}
}

// binary returns the path of a program of Kubernetes that 'make testbed-build' has built.
func binary(t *testing.T, name string) string {
	t.Helper()
	dirs := []string{os.Getenv("LIQO_TESTBED_BIN")}
	if cache, err := os.UserCacheDir(); err == nil {
		dirs = append(dirs, filepath.Join(cache, "liqo-testbed", "kubernetes-"+apitest.KubernetesVersion), filepath.Join(cache, "liqo-testbed", "build"))
	}
	for _, dir := range dirs {
		if path := filepath.Join(dir, name); dir != "" {
			if _, err := os.Stat(path); err == nil {
				return path
			}
		}
	}
	t.Fatalf("no %s in %v: run 'make testbed-build'", name, dirs)
	return ""
}
