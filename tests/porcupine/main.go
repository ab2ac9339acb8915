// Porcupine judges the small histories of the torture test: it searches for an order of the operations on each key in
// which a lock with leases (model.go) gives every client the reply that it got.
//
//	porcupine FOLDER              judges all files in it; exits with 1 if a history has no order
//	porcupine --page OUT.html FILE   also draws the only history of a file
//	porcupine --verdict FILE         judges a history of tests/jepsen without leases (plain.go): Ok, Illegal or Unknown
//
// docs/TESTING.md says what the model leaves out.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// patience bounds the search in one history, which usually takes milliseconds.
const patience = 30 * time.Second

func main() {
	page := flag.String("page", "", "draw the only history of a file")
	plain := flag.String("verdict", "", "print the verdict on a history of tests/jepsen")
	flag.Parse()
	if *plain != "" {
		result, err := verdict(*plain)
		if err != nil {
			fmt.Fprintln(os.Stderr, "porcupine:", err)
			os.Exit(1)
		}
		fmt.Println(result)
		return
	}
	if err := judgeAll(flag.Args(), *page); err != nil {
		fmt.Fprintln(os.Stderr, "porcupine:", err)
		os.Exit(1)
	}
}

// most is how many histories without an order are drawn: that takes a longer search.
const most = 3

// verdicts counts histories by their result.
type verdicts struct {
	histories, operations, open int
	results                     map[porcupine.CheckResult]int
}

func judgeAll(paths []string, page string) error {
	var files []string
	for _, path := range paths {
		inside, err := filepath.Glob(filepath.Join(path, "*.jsonl"))
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".jsonl") {
			inside = []string{path}
		}
		files = append(files, inside...)
	}
	sum := verdicts{results: map[porcupine.CheckResult]int{}}
	begun := time.Now()
	for _, file := range files {
		if err := sum.judge(file, page); err != nil {
			return err
		}
	}
	if sum.histories == 0 {
		return errors.New("there are no histories to judge")
	}
	fmt.Printf("porcupine: %d histories, %d operations, %d of them without a reply: "+
		"%d have an order, %d have none, %d undecided; %.1f s\n",
		sum.histories, sum.operations, sum.open, sum.results[porcupine.Ok], sum.results[porcupine.Illegal],
		sum.results[porcupine.Unknown], time.Since(begun).Seconds())
	if rejected := sum.results[porcupine.Illegal]; rejected > 0 {
		return fmt.Errorf("%d histories have no order", rejected)
	}
	return nil
}

// judge judges the histories of a file, and draws each that has no order beside the file.
func (sum *verdicts) judge(file, page string) error {
	what, ops, err := read(file)
	if err != nil {
		return err
	}
	lock := model(what.Margin)
	parts := byKey(history(ops, what.Grace))
	if page != "" && len(parts) != 1 {
		return fmt.Errorf("%s has %d histories: only one can be drawn", file, len(parts))
	}
	for _, part := range parts {
		sum.histories++
		sum.operations += len(part)
		for _, op := range part {
			if op.Output.(outcome).isLost {
				sum.open++
			}
		}
		result := porcupine.CheckOperationsTimeout(lock, part, patience)
		sum.results[result]++
		key := part[0].Input.(operation).Key
		drawn := page
		if result == porcupine.Illegal {
			fmt.Printf("%s, seed %d: %s has no order\n", what.Setup, what.Seed, key)
			if drawn == "" && sum.results[porcupine.Illegal] <= most {
				drawn = strings.TrimSuffix(file, ".jsonl") + "-" + strings.ReplaceAll(key, ":", "-") + ".html"
			}
		}
		if drawn != "" {
			_, info := porcupine.CheckOperationsVerbose(lock, part, patience)
			if err := porcupine.VisualizePath(lock, info, drawn); err != nil {
				return err
			}
			fmt.Printf("    drawn in %s\n", drawn)
		}
	}
	return nil
}
