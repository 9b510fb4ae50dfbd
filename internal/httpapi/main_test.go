package httpapi_test

import (
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }
