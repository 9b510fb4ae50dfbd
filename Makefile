# Two commands are enough: `make run` serves, `make test` sets up and tests.
GO ?= go
BIN := bin/divan
# The commit, for `divan version`; empty outside of a repository.
COMMIT := $(shell git describe --always --dirty=+changes --exclude '*' 2>/dev/null)
LDFLAGS := -X github.com/divandb/divan/internal/server.commit=$(COMMIT)

# Packages whose goroutines share memory: the race detector runs on these.
RACE := ./internal/auth ./internal/kv ./internal/shard ./internal/shardhost ./internal/cluster \
	./internal/coordinator ./internal/changes ./internal/noderpc ./internal/httpapi ./internal/server

.PHONY: build run test setup vet unit rpc race fuzz clean

build:
	@mkdir -p bin
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/divan

run: build
	$(BIN) serve --addr 127.0.0.1:5984 --data ./data

# Everything, in the order in which it is cheapest to fail.
test: setup vet unit rpc race fuzz

# What the tests need beside Go.
setup:
	@./test/setup.sh

vet:
	@files=$$(gofmt -l cmd internal bench test); test -z "$$files" || { echo "gofmt would change:"; echo "$$files"; exit 1; }
	$(GO) vet ./...

# All packages, the real clients and the crash tests among them.
unit:
	$(GO) test -timeout 12m ./...

# The HTTP suite again, with every shard call on the wire between nodes.
rpc:
	DIVAN_SHARD_RPC=1 $(GO) test -timeout 5m ./internal/httpapi

race:
	$(GO) test -race -short -timeout 8m $(RACE)

# FUZZTIME=1m make fuzz looks for longer.
fuzz:
	@GO=$(GO) ./test/fuzz.sh

clean:
	rm -rf bin
