// kstatus reads Kubernetes objects as JSON, one after the other, from standard input and says of each, one line of JSON,
// what the kstatus library (as Flux, Argo CD's and kubectl's helpers use it) makes of its status.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	if err := computeAll(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kstatus:", err)
		os.Exit(1)
	}
}

func computeAll(in io.Reader, out io.Writer) error {
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var text json.RawMessage
		if err := decoder.Decode(&text); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var object unstructured.Unstructured
		if err := object.UnmarshalJSON(text); err != nil {
			return err
		}
		result, err := status.Compute(&object)
		if err != nil {
			return err
		}
		answer := map[string]string{"status": result.Status.String(), "message": result.Message}
		if err := encoder.Encode(answer); err != nil {
			return err
		}
	}
}
