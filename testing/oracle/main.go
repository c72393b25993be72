// The oracle asks the real Kubernetes packages what they make of quantities, CEL selectors and
// whole allocations.
//
// It reads one JSON question per line and writes one JSON answer per line, in order, until its
// input ends. testing/oracle/go.py is the other side.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

// question holds exactly one member.
type question struct {
	Versions bool          `json:"versions,omitempty"`
	Quantity *pair         `json:"quantity,omitempty"`
	Cel      *selector     `json:"cel,omitempty"`
	Text     *textQuestion `json:"text,omitempty"`
	Allocate *scenario     `json:"allocate,omitempty"`
	Bench    *measurement  `json:"bench,omitempty"`
}

// pair is two texts that may be quantities.
type pair struct {
	A string `json:"a"`
	B string `json:"b"`
}

// amount is what one text was read as; Error is set when it is no quantity.
type amount struct {
	Error     string `json:"error,omitempty"`
	Canonical string `json:"canonical,omitempty"`
	Format    string `json:"format,omitempty"`
	RoundedUp string `json:"roundedUp,omitempty"`
}

// arithmetic is what becomes of two quantities; Compare, Sum and Difference need both.
type arithmetic struct {
	A          amount `json:"a"`
	B          amount `json:"b"`
	Compare    int    `json:"compare"`
	Sum        string `json:"sum,omitempty"`
	Difference string `json:"difference,omitempty"`
}

// selector is an expression, where it is compiled ("new" or "stored"), and a device.
type selector struct {
	Expression  string `json:"expression"`
	Environment string `json:"environment"`
	Device      device `json:"device"`
}

type device struct {
	Driver                   string                                                    `json:"driver"`
	AllowMultipleAllocations *bool                                                     `json:"allowMultipleAllocations,omitempty"`
	Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes,omitempty"`
	Capacity                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity,omitempty"`
}

// verdict is one of match, noMatch, compileError, tooExpensive (by estimate; only the API server
// asks) and runtimeError, the error's words, and what the estimate was.
type verdict struct {
	Verdict string `json:"verdict"`
	Error   string `json:"error,omitempty"`
	Cost    uint64 `json:"cost,omitempty"`
}

// textQuestion is an expression without a device that gives a string.
type textQuestion struct {
	Expression string `json:"expression"`
}

type textAnswer struct {
	Text  string `json:"text"`
	Error string `json:"error,omitempty"`
}

// features are the defaults of Kubernetes 1.37: consumable capacity is beta, list types are alpha.
var features = dracel.Features{EnableConsumableCapacity: true}

func main() {
	input := bufio.NewReader(os.Stdin)
	output := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(output)
	for {
		line, err := input.ReadBytes('\n')
		if len(line) > 0 {
			var asked question
			if err := strictly(line, &asked); err != nil {
				fail(err)
			}
			if err := encoder.Encode(answer(asked)); err != nil {
				fail(err)
			}
		}
		// Whoever asks in batches should not pay for a write per answer.
		if err != nil || input.Buffered() == 0 {
			if err := output.Flush(); err != nil {
				fail(err)
			}
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			fail(err)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "oracle:", err)
	os.Exit(1)
}

func answer(asked question) any {
	switch {
	case asked.Quantity != nil:
		return quantities(*asked.Quantity)
	case asked.Cel != nil:
		return evaluate(*asked.Cel)
	case asked.Text != nil:
		return text(*asked.Text)
	case asked.Allocate != nil:
		return allocated(*asked.Allocate)
	case asked.Bench != nil:
		return measured(*asked.Bench)
	default:
		return versions()
	}
}

// versions maps the Kubernetes modules and cel-go to the versions that were built in.
func versions() map[string]string {
	found := map[string]string{}
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if strings.HasPrefix(module.Path, "k8s.io/") || module.Path == "github.com/google/cel-go" {
			found[module.Path] = module.Version
		}
	}
	return found
}

func quantities(asked pair) arithmetic {
	a, errA := resource.ParseQuantity(asked.A)
	b, errB := resource.ParseQuantity(asked.B)
	result := arithmetic{A: described(a, errA), B: described(b, errB)}
	if errA == nil && errB == nil {
		result.Compare = a.Cmp(b)
		sum, difference := a.DeepCopy(), a.DeepCopy()
		sum.Add(b.DeepCopy())
		difference.Sub(b.DeepCopy())
		result.Sum = canonical(sum)
		result.Difference = canonical(difference)
	}
	return result
}

func described(q resource.Quantity, err error) amount {
	if err != nil {
		return amount{Error: err.Error()}
	}
	rounded := q.DeepCopy()
	rounded.RoundUp(0)
	// The plain number, whatever the family.
	rounded.Format = resource.DecimalSI
	whole := rounded.AsDec()
	return amount{Canonical: canonical(q), Format: string(q.Format), RoundedUp: whole.String()}
}

// canonical is String without its memory of the text: "1.500" is remembered as it was written.
func canonical(q resource.Quantity) string {
	number, suffix := q.CanonicalizeBytes(nil)
	return string(number) + string(suffix)
}

func evaluate(asked selector) verdict {
	kind := environment.StoredExpressions
	if asked.Environment == "new" {
		kind = environment.NewExpressions
	}
	compiled := dracel.GetCompiler(features).CompileCELExpression(
		asked.Expression, dracel.Options{EnvType: &kind})
	if compiled.Error != nil {
		return verdict{Verdict: "compileError", Error: compiled.Error.Detail}
	}
	if kind == environment.NewExpressions && compiled.MaxCost > resourceapi.CELSelectorExpressionMaxCost {
		return verdict{Verdict: "tooExpensive", Cost: compiled.MaxCost}
	}
	matches, _, err := compiled.DeviceMatches(context.Background(), dracel.Device{
		Driver:                   asked.Device.Driver,
		AllowMultipleAllocations: asked.Device.AllowMultipleAllocations,
		Attributes:               asked.Device.Attributes,
		Capacity:                 asked.Device.Capacity,
	})
	switch {
	case err != nil:
		return verdict{Verdict: "runtimeError", Error: err.Error(), Cost: compiled.MaxCost}
	case matches:
		return verdict{Verdict: "match", Cost: compiled.MaxCost}
	default:
		return verdict{Verdict: "noMatch", Cost: compiled.MaxCost}
	}
}

var plainLanguage = sync.OnceValues(func() (*cel.Env, error) { return cel.NewEnv() })

// text evaluates an expression that gives a string, in the plain language.
func text(asked textQuestion) textAnswer {
	env, err := plainLanguage()
	if err != nil {
		return textAnswer{Error: err.Error()}
	}
	checked, issues := env.Compile(asked.Expression)
	if issues.Err() != nil {
		return textAnswer{Error: issues.Err().Error()}
	}
	program, err := env.Program(checked)
	if err != nil {
		return textAnswer{Error: err.Error()}
	}
	value, _, err := program.Eval(map[string]any{})
	if err != nil {
		return textAnswer{Error: err.Error()}
	}
	literal, ok := value.Value().(string)
	if !ok {
		return textAnswer{Error: "not a string"}
	}
	return textAnswer{Text: literal}
}
