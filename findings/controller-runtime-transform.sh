#!/bin/bash
# Guess: while a cache's Transform works on one object, cached reads of other objects go on.
# Behaviour: every cached read of that kind waits until Transform returns.
# Version: controller-runtime v0.23.3 with client-go v0.35.4. Who wants late events holds back the watch's response.
set -euo pipefail
export GOTOOLCHAIN=go1.26.8 GOWORK=off CGO_ENABLED=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export GOMODCACHE=$folder/modules GOFLAGS='-modcacherw -trimpath' # so a package that is gone is missed
mkdir "$folder/run" && cd "$folder/run"

cat > go.mod <<-'END'
	module example.com/transform
	go 1.26
	require sigs.k8s.io/controller-runtime v0.23.3
	require k8s.io/api v0.35.4
	require k8s.io/apimachinery v0.35.4
	require k8s.io/client-go v0.35.4
END
cat > main.go <<-'END'
	package main

	import (
		"context"
		"fmt"
		"io"
		"net/http"
		"net/http/httptest"
		"time"

		corev1 "k8s.io/api/core/v1"
		"k8s.io/apimachinery/pkg/api/meta"
		"k8s.io/apimachinery/pkg/runtime/schema"
		"k8s.io/client-go/rest"
		"sigs.k8s.io/controller-runtime/pkg/cache"
		"sigs.k8s.io/controller-runtime/pkg/client"
	)

	const object = `{"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"namespace": "default", "name": "%s", "resourceVersion": "%d"}}`

	func main() {
		later, release, began := make(chan struct{}), make(chan struct{}), make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.FormValue("watch") == "" {
				fmt.Fprintf(w, `{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [`+object+`]}`, "first", 1)
				return
			}
			if r.FormValue("sendInitialEvents") != "" {
				w.WriteHeader(http.StatusUnprocessableEntity) // it lists instead
				return
			}
			w.(http.Flusher).Flush()
			<-later
			io.WriteString(w, `{"type": "ADDED", "object": `+fmt.Sprintf(object, "second", 2)+"}\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}))
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
		c, err := cache.New(&rest.Config{Host: server.URL}, cache.Options{Mapper: mapper, ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Transform: func(obj any) (any, error) {
				if obj.(*corev1.ConfigMap).Name == "second" {
					close(began)
					<-release
				}
				return obj, nil
			}},
		}})
		if err != nil {
			panic(err)
		}
		go c.Start(context.Background())
		c.WaitForCacheSync(context.Background())
		read := func() (took time.Duration) {
			at := time.Now()
			if err := c.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "first"}, &corev1.ConfigMap{}); err != nil {
				panic(err)
			}
			return time.Since(at)
		}
		read()
		fmt.Printf("before: waits=%t\n", read() > time.Second)
		close(later)
		<-began
		time.AfterFunc(5*time.Second, func() { close(release) })
		fmt.Printf("while Transform works on another object: waits=%t\n", read() > time.Second)
	}
END
go mod tidy
go run . | tee seen
diff seen - <<-'END'
	before: waits=false
	while Transform works on another object: waits=true
END
