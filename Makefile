# make demo   two clusters, installed, peered, an application offloaded; leaves it running
# make test   tests on real API servers, kernels and clusters, and one story of users; make test-all runs all of them
# See CONTRIBUTING.md for the rest.

SHELL   := /bin/bash
VERSION ?= v0.1.0
IMAGE   ?= liqo-go/liqo:$(VERSION)
FUZZTIME ?= 30s
LDFLAGS := -s -w
# One set of compiler flags for everything, Kubernetes included: each package is compiled once. Without tables for
# debuggers, which no binary keeps, compilers take a fifth less (measured: 91 instead of 114 s of CPU for k8s.io/api).
export CGO_ENABLED := 0
export GOFLAGS     := -trimpath -buildvcs=false -gcflags=all=-dwarf=false

# Compilers and linters that collect garbage less often take a sixth less CPU. Tests keep the default, because the
# product's programs that they start would inherit it.
build check generate: export GOGC := 400

# Build-time tools have fixed versions, here or in lint/go.mod. None enters the product's go.mod.
CONTROLLER_GEN := GOWORK=off go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0

TESTBED := go run ./testbed
KUBECONFIGS = $(CURDIR)/.testbed

.PHONY: build image deps testbed-build generate reference site picture screenshots check seed test test-fast test-first test-rest test-all test-unit test-slow test-timed test-testbed test-stories test-applications test-metrics test-conformance test-versions test-kubernetes-upgrade test-kernel helm demo demo-down demo-env bench scale soak fuzz vulnerabilities findings release release-push clean

build: ## bin/liqo, bin/liqo-control and bin/liqoctl
	go build -ldflags='$(LDFLAGS)' -o bin/ ./cmd/liqo ./cmd/liqo-control ./cmd/liqoctl

image: deps build ## bin/liqo-image.tar, without a container engine
	go run ./deploy/image/archive -tag $(IMAGE) -o bin/liqo-image.tar bin/liqo bin/liqo-control

deps: ## Debian packages for the test clusters, when missing
	$(TESTBED) deps

testbed-build: deps ## Kubernetes for the test clusters, from its Go modules; once
	$(TESTBED) build

generate: ## deepcopy, CRDs and roles from the types and markers
	$(CONTROLLER_GEN) object paths=./api/...
	rm -f deploy/liqo/crds/*.yaml
	$(CONTROLLER_GEN) crd:generateEmbeddedObjectMeta=true,maxDescLen=200 paths=./api/... output:crd:dir=deploy/liqo/crds
	deploy/rbac.sh '$(CONTROLLER_GEN)'

reference: ## docs/reference from the types, commands, values and constants
	go build -o bin/reference ./docs/reference/generate
	rm -f docs/reference/*.md
	bin/reference

site: ## bin/site, the pages as a web site, with mkdocs (apt-get install mkdocs)
	rm -rf bin/site-source && mkdir -p bin/site-source
	git ls-files -z | xargs -0 cp --parents -t bin/site-source
	mkdocs build --strict --clean

picture: ## docs/architecture.svg from its text source, with Graphviz (apt-get install graphviz)
	dot -Tsvg -o docs/architecture.svg docs/architecture.dot

screenshots: deps ## docs/images, of the dashboard's recorded clusters, with Chromium
	go run ./testbed/screenshots

check: ## format, vet, linters, generated files, import law
	@unformatted=$$(find * -name '*.go' ! -path 'bin/*' | xargs gofmt -l) || exit; \
		test -z "$$unformatted" || { echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; }
	GOWORK=off go build -C lint -o ../bin/lint
	bin/lint ./... ./testbed/... ./deploy/image/...
	cd deploy/release && GOWORK=off ../../bin/lint ./...
	go test -count=1 -vet=off ./internal/law -skip '^TestCommitSubjects$$'
	go test -count=1 -vet=off ./internal/law -run '^TestCommitSubjects$$' -v
	deploy/fresh.sh 'make generate reference' api deploy docs/reference

seed: # of random samples; SEED= chooses another
	@echo "SEED=$${SEED:-$$(git rev-parse --short=12 'HEAD^{tree}')}"

test: seed testbed-build image test-unit test-first ## what most changes can break, and one story of users on two clusters

test-rest: seed testbed-build image test-slow test-timed test-testbed test-stories ## what 'make test' leaves out

test-all: seed check test test-rest ## all tests

# 'make check' vets all packages; vet as part of go test analyses all dependencies once more (100 s of CPU).
GO_TEST ?= go test -count=1 -timeout 60m -vet=off

# Most tests wait, so more of them run at once than there are cores. Those named TestTimed… assert a time or a rate
# and run alone.
SIDE_BY_SIDE := go run ./internal/apitest/share $(GO_TEST) -p 4 -parallel 4
TIMED = $(sort $(dir $(addprefix ./,$(shell git grep -l '^func TestTimed' -- '*_test.go' ':!testbed'))))

# Tests that are slow and say little more than a neighbour.
SLOW := internal/law/slow.txt
SLOW_TESTS = ^($(shell sed -n 's/^[a-z].* \(.*\) .*/\1/p' $(SLOW) | paste -sd'|'))$$

# Tests of the test clusters that start some, measure, or send raw packets. 'make check' runs internal/law.
TESTBED_TESTS := bench|conformance/suite|e2e|images/echo
UNIT = $$(go list ./... ./deploy/image/... ./testbed/... | grep -vE '/(internal/law|testbed/($(TESTBED_TESTS)|browser|stories))$$')
# Of these packages none starts an API server, a network namespace, a cluster or a browser.
FAST = $$(go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}} {{.TestGoFiles}} {{.XTestGoFiles}}' $(UNIT) | \
	grep _test.go | grep -vE 'internal/(apitest|space)' | cut -d' ' -f1)

test-fast: seed ## packages that need no privileges, API server, cluster or browser
	$(GO_TEST) -skip '^TestTimed|$(SLOW_TESTS)' $(FAST)
	cd deploy/release && GOWORK=off $(GO_TEST) ./...

test-unit: ## all packages but those that start clusters, and the product's pages in a browser, side by side
	$(SIDE_BY_SIDE) -skip '^TestTimed|$(SLOW_TESTS)' $(UNIT) ./testbed/browser
	cd deploy/release && GOWORK=off $(GO_TEST) ./...

test-slow: ## the tests of internal/law/slow.txt
	$(SIDE_BY_SIDE) -run '$(SLOW_TESTS)' $(sort $(shell sed -n 's|^\([a-z][^ ]*\) .*|./\1|p' $(SLOW)))

test-timed: ## tests of packages that assert a time, alone
	$(GO_TEST) -p 1 -parallel 1 -run '^TestTimed' $(TIMED)

test-testbed: ## the test clusters' own tests
	$(GO_TEST) -p 1 $$(go list ./testbed/... | grep -E '/testbed/($(TESTBED_TESTS))$$')

# The fraction of stories and rows of docs/pods.md that run, by the seed.
SAMPLE ?= 0.5
STORIES = $(GO_TEST) ./testbed/stories -sample $(SAMPLE) $(STORY_FLAGS)

test-first: ## the first hour of a user on two clusters, from the installation to the end
	go build -o bin/testbed ./testbed
	bin/testbed down --all --dir bin/first # of a run that was killed
	$(STORIES) -run '^TestFirst$$' -pair first -rows=false

# One that fails stops no other. Each gives up after ten minutes and runs again, so all have three hours. One core runs
# one pair at a time: two starve the API servers until controllers lose their leases and admission is missed.
test-stories: ## what users do, on real clusters: two pairs side by side, then alone those that assert a time
	go build -o bin/testbed ./testbed
	for pair in connecting peered; do bin/testbed down --all --dir bin/$$pair; done # of a run that was killed
	trap 'for test in $$(jobs -p); do pkill -P $$test; done; wait; for pair in connecting peered; do bin/testbed down --all --dir bin/$$pair; done' EXIT; \
		$(STORIES) -timeout 3h -run '^TestConnecting$$' -pair connecting & connecting=$$!; \
		[ $$(nproc) -gt 1 ] || wait $$connecting || true; \
		$(STORIES) -timeout 3h -run '^TestPeered$$' -pair peered -keep & peered=$$!; \
		red=0; wait $$peered || red=1; wait $$connecting || red=1; \
		{ $(STORIES) -timeout 3h -run '^TestTimed' -skip '^TestTimedUpgrade$$' -pair peered & wait $$!; } || red=1; exit $$red

# Each part takes less than an hour. Versions that are missing are built first, ten minutes each.
VERSIONS ?= 1.35 1.36 1.37 rome=1.35,milan=1.37 rome=1.37,milan=1.35 rome=1.34,milan=1.37 rome=1.37,milan=1.34 upgrade

test-versions: testbed-build image ## what users do, on other versions of Kubernetes; writes the table of docs/compatibility.md
	go run ./testbed/versions $(VERSIONS)

test-kubernetes-upgrade: ## Kubernetes of two peered clusters goes from version to version
	$(STORIES) -v -run '^TestKubernetes$$' -pair kubernetes -kubernetes 1.35

helm: ## bin/helm3 and bin/helm4, the programs that users of Helm run
	cd testbed/helm3 && GOWORK=off go build -o ../../bin/helm3 helm.sh/helm/v3/cmd/helm
	cd testbed/helm4 && GOWORK=off go build -o ../../bin/helm4 helm.sh/helm/v4/cmd/helm

test-applications: testbed-build image ## real programs on real clusters, like PostgreSQL; the first run compiles them
	go run ./testbed/applications
	$(MAKE) helm
	$(STORIES) -v -run '^TestApplications$$' -pair applications

test-metrics: testbed-build image ## dashboards and alerts, with Prometheus on real clusters; the first run compiles it
	$$(dirname $$(go run ./testbed/applications prometheus))/promtool test rules deploy/testdata/alerts.yaml
	$(STORIES) -v -run '^TestMetrics$$' -pair metrics

test-kernel: ## WireGuard of the kernel, on a kernel that has it, in an emulated machine; minutes
	testbed/vm/run

demo: testbed-build image ## the main job, left running
	demo/run

demo-down: ## stop the demo clusters, leave nothing behind
	$(TESTBED) down --all

demo-env:
	@echo 'export ROME=$(KUBECONFIGS)/rome/kubeconfig MILAN=$(KUBECONFIGS)/milan/kubeconfig'
	@$(TESTBED) env
	@echo 'export PATH=$(CURDIR)/bin:$$PATH'

bench: testbed-build image ## figures, as ratios in one run
	go run ./testbed/bench

scale: testbed-build image ## docs/scale.md and its pictures: what grows with nodes, Services, namespaces, peers and pods
	go run ./testbed/bench -only scale

test-conformance: testbed-build image ## Kubernetes' own tests of pods, on a virtual and on real nodes; writes docs/conformance.md
	go run ./testbed/conformance

soak: testbed-build image ## what usual runs try samples of, in full
	$(GO_TEST) -run TestPodsOfTwoClusters ./cmd/liqo-control -soak
	$(MAKE) test-stories STORY_FLAGS='-timeout 120m -soak'
	$(MAKE) helm
	$(STORIES) -run '^TestTimedUpgrade$$' -pair upgrade
	$(STORIES) -run '^TestTemplates$$' -pair templates
	$(STORIES) -run '^TestPolicies$$' -pair policies -cni policies
	$(STORIES) -v -run '^TestRelease$$' -pair release -load=false
	$(STORIES) -run '^TestFlux$$' -pair flux
	$(MAKE) test-metrics
	$(GO_TEST) ./dashboard -run OddObjects -soak
	$(GO_TEST) ./reflection -run Chaos -soak
	$(GO_TEST) ./network/dataplane -run TestAnySequenceLeavesNothing -soak
	$(MAKE) fuzz

fuzz: ## what is read of others, with input nobody thought of, FUZZTIME for each reader
	@git grep -o '^func Fuzz[A-Za-z]*' -- '*_test.go' | sed 's|/[^/]*:func | |' | while read package name; do \
		go test ./$$package -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) || exit; done

vulnerabilities: ## what shipped code calls and Go's vulnerability database knows; VULNDB=<version of the database>
	deploy/vulnerabilities.sh $(VULNDB)

findings: ## what surprised us in other people's software, again: says what changed
	@changed=; for script in findings/*.sh; do echo "== $$script"; $$script || changed+=" $$script"; done; \
		[ -z "$$changed" ] || { echo "changed, or a package is gone:$$changed"; exit 1; }

RELEASE := GOWORK=off go run -C deploy/release .
SIGN = -key '$(KEY)' $(if $(filter yes,$(UNSIGNED)),-unsigned)

release: ## dist/, from the commit: VERSION= REGISTRY=<host/folder> URL=<of the files> KEY=<to sign with> or UNSIGNED=yes
	$(RELEASE) build -dist '$(CURDIR)/dist' -version '$(VERSION)' -registry '$(REGISTRY)' -url '$(URL)' $(SIGN)

release-push: ## image and chart of dist/ to REGISTRY=<host/folder> KEY=<to sign with> or UNSIGNED=yes
	$(RELEASE) push -dist '$(CURDIR)/dist' -registry '$(REGISTRY)' $(SIGN)

clean:
	rm -rf bin dist
