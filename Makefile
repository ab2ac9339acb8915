# The project's commands. `make help` lists them; cargo and the scripts in scripts/ do the work.

PORT ?= 6379
# The server to run, test and measure, for example .servers/valkey-9.1.2/server.
REDIS_SERVER ?= redis-server
export PORT REDIS_SERVER
# Tests spend more time waiting than computing.
export RUST_TEST_THREADS ?= $(shell expr 2 '*' $$(nproc) + 1)
# The PATH of an open shell does not have a cargo that rustup has just installed.
export PATH := $(PATH):$(HOME)/.cargo/bin

ifdef LIBCLANG_PATH
# The libclang of a Python wheel comes without its headers; the C compiler's headers will do.
export BINDGEN_EXTRA_CLANG_ARGS ?= -I$(shell cc -print-file-name=include)
endif

# The duration of torture, simulation and fuzzing.
SECONDS ?= 60

.DEFAULT_GOAL := help
.PHONY: help build build-top run images test unit-tests test-top test-clients test-all-clients test-frameworks compat busy-tests test-arm64 musl test-musl test-images server-packages reproducible simulate model prove jepsen torture porcupine soak coverage upgrade-test test-matrix mutants cargo-mutants fuzz memcheck msrv advisories nightly lint lint-module lint-packages subjects fmt copies demo bench bench-bounds bench-capacity bench-clients bench-peers bench-tables pictures bench-instructions servers install-deps clean install install-top uninstall release-check release-files release-dry-run sbom package cluster sentinel

help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PORT=6379 is the port of 'make run' and 'make sentinel', and the first of 'make cluster' (7000); REDIS_SERVER=path names another server binary for run, sentinel, test, demo and bench."

##@ Use it

build: install-deps ## Build the module: target/release/libredis_lock.so
	cargo build --release --lib

musl: install-deps ## Build the module for Alpine: target/musl/build/*/release/libredis_lock.so (rustup, pip)
	@scripts/musl.sh build

build-top: install-deps ## Build lock-top, the view of locks in a terminal: target/tool/lock-top
	cargo build --locked --profile tool --package lock-top

run: build ## Start a server with the module on PORT, in the foreground
	@scripts/run.sh

sentinel: build ## Start a master, two replicas and three sentinels from PORT on, in the foreground
	@scripts/sentinel.sh

# Servers of a cluster also use their ports plus 10000, so its default is a port range of its own.
cluster: build ## Start a cluster of three masters and three replicas from PORT (7000) on, in the foreground
	@CLUSTER_PORT=$(if $(filter file,$(origin PORT)),$${CLUSTER_PORT:-7000},'$(PORT)') scripts/cluster.sh

demo: build ## Show how a hand-made lock fails and LOCK.* does not
	cargo run --quiet --example demo

# In CI a skip is a failure, or nobody would notice it.
images: ## Build images of Redis and Valkey with the module, on Debian and Alpine (docker, podman or buildah)
	@scripts/images.sh || [ "$$?$$CI" = 3 ]

servers: ## Fetch other server versions into .servers/, to test and measure against
	@scripts/fetch-servers.sh

# This does not build, because root often has no cargo, and should not leave files in target/.
install: ## Install what `make build` built into this machine's server (as root; PREFIX, MODULEDIR, CONF, DESTDIR)
	@scripts/install.sh install

install-top: ## Install what `make build-top` built into PREFIX=/usr/local (as root; DESTDIR)
	install -D -m 755 $${CARGO_TARGET_DIR:-target}/tool/lock-top $(DESTDIR)$(or $(PREFIX),/usr/local)/bin/lock-top

uninstall: ## Remove what `make install` installed
	@scripts/install.sh uninstall

##@ Check a change

test: build ## Run all tests, on real servers
	cargo test

# This is all that macOS tests: the other tests start servers with shims for Linux. It installs nothing.
unit-tests: ## Compile the module, and run the unit tests that need no server, also on macOS
	cargo build --release --lib
	cargo test --lib --package redis-lock-core --package redis-lock
	cargo test --lib --manifest-path clients/rust/Cargo.toml --package serverlock --features tokio,testing \
		--target-dir "$${CARGO_TARGET_DIR:-target}/clients/serverlock-rust"

# Without tmux the tests of the view in a terminal are skipped, and say so.
test-top: build ## Run the tests of lock-top, on real servers and in a real terminal
	@command -v tmux >/dev/null || scripts/install-deps.sh tmux || true
	cargo test --package lock-top

test-clients: build ## Test the packages in clients/, in each language
	@scripts/test-clients.sh

test-all-clients: build ## The same, each scenario with every client library: about twice as long
	@SUITE_ALL=1 scripts/test-clients.sh

test-frameworks: build ## Test the drop-ins for frameworks, with real workers that are killed (needs the network)
	@scripts/test-frameworks.sh

compat: build ## Run other projects' tests of their locks against our adapters (needs the network)
	@scripts/compat.sh $(ROWS)

lint: lint-module lint-packages ## Check format, lints, documentation, prose, crates, scripts and packages; compile for ARM64

lint-module: install-deps
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps
	@scripts/arm64.sh check || [ $$? = 3 ]
	@if command -v python3 >/dev/null; then scripts/prose.py --lint; \
	else echo "lint: skipped the prose: python3 is missing"; fi
	@if command -v python3 >/dev/null; then $(MAKE) --no-print-directory release-check; \
	else echo "lint: skipped the version: python3 is missing"; fi
	@if cargo deny --version >/dev/null 2>&1; then \
		cargo deny --offline check bans licenses sources; \
	else echo "lint: skipped deny.toml: 'cargo install cargo-deny --locked' first"; fi
	@if command -v shellcheck >/dev/null; then \
		shellcheck .ci/run scripts/*.sh scripts/frameworks/*.sh benches/peers/*.sh clients/shell/serverlock packaging/redis-lock-module packaging/deb/p*; \
	else echo "lint: skipped the shell scripts: shellcheck is missing"; fi

lint-packages: install-deps
	@scripts/lint-clients.sh

fmt: ## Format the code
	cargo fmt --all

copies: ## Copy portable/lock.lua into the packages that carry it
	@git ls-files -- 'clients/**/lock.lua' | xargs -n 1 cp portable/lock.lua

simulate: install-deps ## Simulate servers, clients, clocks and failovers for SECONDS=60, from SEED if given
	@SIMULATE_SECONDS=$(SECONDS) SIMULATE_SEED=$(SEED) cargo test --quiet -p redis-lock-core --test model simulator::fresh -- --ignored --nocapture

model: install-deps ## Check the protocol in every order of events, with larger bounds than `make test`: ten minutes
	LOCK_MODEL=large cargo test --release --quiet --package redis-lock-core --test model -- --nocapture

prove: ## Check the specification in tests/tla with TLC, and find its counterexamples (Java 17, Maven): minutes
	@scripts/prove.sh

# The small histories of the last `make torture`.
HISTORIES ?= $(abspath $(or $(CARGO_TARGET_DIR),target)/histories)
# LOSS=2 RATE=20mbit loses 2% of all packets, and limits the bandwidth of all connections together (root).
torture: build ## Break things at random for SECONDS=60, from SEED if given, and judge the clients' histories
	@cargo test --quiet --no-run --test torture
	@set -eu; seed=$(or $(SEED),$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')); rm -f '$(HISTORIES)'/*.jsonl; \
		TORTURE_SEED=$$seed TORTURE_SECONDS=$(SECONDS) TORTURE_HISTORIES='$(HISTORIES)' \
			$(if $(LOSS)$(RATE),LOSS=$(LOSS) RATE=$(RATE) scripts/lossy.sh) cargo test --quiet --test torture run:: -- --nocapture; \
		scripts/porcupine.sh '$(HISTORIES)'; \
		LOCK_SEED=$$seed LOCK_FAILOVERS=$$(($(SECONDS) / 20 + 1)) \
			cargo test --quiet --test integration sentinel::failovers::no_failover -- --nocapture

porcupine: ## Let Porcupine judge the small histories of the last `make torture` again (Go)
	@scripts/porcupine.sh '$(HISTORIES)'

# For its two hours: make soak SECONDS=7200.
soak: build ## Let all kinds of clients work on three servers for SECONDS=60: the servers' memory stays the same
	@SOAK_SECONDS=$(SECONDS) scripts/soak.sh

# TESTS=core runs no integration tests.
coverage: build ## Measure which lines and branches of the module no test runs (llvm-tools of rustup, or Debian's LLVM)
	@scripts/coverage.sh $(TESTS)

# ARGS chooses runs, for example ARGS='--systems etcd --nemeses kill'. There are 27, each of SECONDS, at most 120.
# In CI a skip is a failure, or nobody would notice it.
jepsen: build ## Run Jepsen's lock workloads on the module, Redisson and etcd, from SEED if given (root, Java 17, Maven, Go)
	@scripts/jepsen.sh --seconds $$(($(SECONDS) < 120 ? $(SECONDS) : 120)) $(if $(SEED),--seed $(SEED)) $(ARGS) || [ "$$?$$CI" = 3 ]

mutants: install-deps ## Apply each mutant, and check that the tests find it: about an hour on two cores
	@scripts/mutants.sh

# The default is where the branch left main.
SINCE ?= origin/main
subjects: ## Check the subjects of the commits since SINCE=origin/main
	@git log --no-merges --format=%s $(SINCE)..HEAD | scripts/subjects.sh

##@ Slow and rare checks

# .github/workflows/nightly.yml runs the same, each on its own machine.
NIGHTLY = torture simulate model soak prove jepsen coverage fuzz mutants memcheck test-all-clients test-frameworks compat busy-tests test-arm64 test-musl images test-images server-packages reproducible release-dry-run msrv advisories
nightly: build ## Run the slow checks one after the other, the random ones for SECONDS each: an hour or two
	@failed=; for check in $(NIGHTLY); do \
		echo "nightly: make $$check"; $(MAKE) --no-print-directory $$check || failed="$$failed $$check"; \
	done; \
	if [ -n "$$failed" ]; then echo "nightly: FAILED:$$failed" >&2; exit 1; fi

upgrade-test: build ## Upgrade a group and a cluster under load from the build of FROM (the last tag) to this one, and back
	@FROM=$(FROM) scripts/upgrade-test.sh

test-matrix: build ## Run the integration tests on every server that can be fetched; writes docs/SERVERS.md
	@scripts/test-matrix.sh

# PIECE=2/5 runs the second of five pieces.
busy-tests: build ## Run every test with a bound on time TIMES=50 times alongside busy loops: an hour or more
	@scripts/busy-tests.sh $(TESTS)

# In CI a skip is a failure, or nobody would notice it.
test-arm64: install-deps ## Run the tests of commands, waiting, sessions and persistence on ARM64, under qemu
	@scripts/arm64.sh test || [ "$$?$$CI" = 3 ]

test-musl: install-deps ## Run the integration tests on a server built against musl, the C library of Alpine: minutes
	@scripts/musl.sh test || [ "$$?$$CI" = 3 ]

test-images: install-deps ## Carry out the Dockerfile's steps on Debian and musl trees, and run the servers (root, debootstrap, rustup)
	@[ "$$(id -u)" != 0 ] || command -v debootstrap >/dev/null || scripts/install-deps.sh debootstrap
	@python3 tests/images/test_images.py || [ "$$?$$CI" = 3 ]

server-packages: install-deps ## Build the packages that start a server for tests (Python, npm), and test them, Go and Java
	@scripts/server-packages.sh test

fuzz: install-deps ## Fuzz the readers of values and arguments, and the queue, SECONDS each (nightly, cargo-fuzz)
	@SECONDS_EACH=$(SECONDS) scripts/fuzz.sh

memcheck: install-deps ## Run the integration tests with AddressSanitizer: a few minutes
	@scripts/memcheck.sh

cargo-mutants: install-deps ## Make small changes to the core, and check that tests fail: two hours (cargo-mutants)
	@scripts/cargo-mutants.sh

msrv: install-deps ## Check that the module compiles with the oldest Rust that Cargo.toml names (rustup)
	@set -eu; rust=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml); \
		rustup toolchain install --no-self-update --profile minimal $$rust; \
		cargo +$$rust check --locked --lib --target-dir target/msrv

# LANGUAGES="rust go" checks only these. In CI a database that cannot be reached is a failure.
advisories: ## Ask the databases about known vulnerabilities in what each language uses (needs the network)
	@scripts/advisories.sh $(LANGUAGES) || [ "$$?$$CI" = 3 ]

##@ Measure and draw

bench: build ## Compare with the locks that people use instead; keeps the raw rounds in benches/runs/
	cargo bench --bench lock

bench-bounds: build ## Run the benches with bounds, and print each verdict: about 20 minutes
	BENCH_ROUNDS=$${BENCH_ROUNDS:-5} cargo bench --bench lock -- bounds --measure

bench-clients: build ## Compare the packages of clients/ with raw commands and other libraries: about forty minutes
	python3 benches/clients/run.py

# ARGS chooses parts and contenders, for example ARGS='--only hot --peers etcd --seconds 2'.
bench-peers: build ## Compare with etcd, ZooKeeper, Redisson, Hazelcast, PostgreSQL and others: more than two hours
	@benches/peers/install.sh
	python3 benches/peers/run.py $(ARGS)
	python3 benches/peers/tables.py

bench-capacity: build ## Measure what docs/CAPACITY.md computes with, in clusters of up to 12 masters: about ten minutes
	python3 benches/capacity/run.py
	python3 benches/capacity/tables.py

bench-instructions: build ## Count the instructions of each command, twice, with valgrind
	cargo bench --bench lock -- instructions

bench-tables: ## Fill the tables and draw the plots of README.md and benches/README.md from the newest raw runs
	cargo bench --bench lock -- plots
	cargo bench --bench lock -- bounds --write
	python3 benches/peers/tables.py
	python3 benches/capacity/tables.py

pictures: ## Draw the pictures of the documents from the texts in docs/pictures
	cargo xtask pictures

##@ Release

release-check: ## Check that all files have the same version and address (scripts/release.py)
	@scripts/release.py check

# COMPLETE=1 fails if anything would be left out.
export COMPLETE
# PARTS="python node" builds only these.
FOLDER ?= target/release-files
release-files: ## Build what a release publishes, in FOLDER=target/release-files, without publishing it
	@scripts/release-artifacts.sh '$(FOLDER)' $(PARTS)

release-dry-run: ## The same from a clean clone of the last commit, in target/release-dry-run
	@scripts/release-artifacts.sh dry-run $(PARTS)

sbom: ## List what each package brings along, as CycloneDX, in target/sbom
	@scripts/sbom.py $(or $(CARGO_TARGET_DIR),target)/sbom $(LANGUAGES) || [ "$$?$$CI" = 3 ]

package: install-deps ## Build the archives and Debian packages of a release in target/package/, for ARM64 too
	@scripts/package.sh

reproducible: install-deps ## Build the packages twice, in two folders, and compare them: a few minutes
	@scripts/reproducible.sh

##@ The rest

install-deps: ## Install what is missing (the other targets do it themselves)
	@scripts/install-deps.sh

clean: ## Remove build results and the data of `make run`
	cargo clean
	rm -rf .data
