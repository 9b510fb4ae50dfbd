# Two commands are enough: `make run` serves, `make test` sets up and tests.
GO ?= go
BIN := bin/divan

.PHONY: build run test setup vet unit race clients fuzz clean

build:
	@mkdir -p bin
	$(GO) build -trimpath -o $(BIN) ./cmd/divan

run: build
	$(BIN) serve --addr 127.0.0.1:5984 --data ./data

test: vet
	$(GO) test ./...

vet:
	@test -z "$$(gofmt -l cmd internal bench test)" || { gofmt -l cmd internal bench test; echo "gofmt would change these files"; exit 1; }
	$(GO) vet ./...

clean:
	rm -rf bin
