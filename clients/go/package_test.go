package serverlock_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Tests the module as users get it: from a module proxy, in an empty project that runs the README's examples.

const path = "example.com/serverlock"

// The go command caches a version forever, so each run has its own.
var version = fmt.Sprintf("v0.1.0-test.%d", time.Now().UnixNano())

// publish creates a file proxy with this module, zipped as the go command does, and returns its folder.
func publish(t *testing.T) string {
	t.Helper()
	proxy := filepath.Join(t.TempDir(), "proxy")
	names := add(t, proxy, path, ".", func(mod string) string { return mod })
	for _, name := range []string{
		"README.md", "LICENSE", "go.mod", "lock.lua", "goredis/goredis.go", "redigo/redigo.go", "redsync/redsync.go",
		"redislock/redislock.go", "locktest/locktest.go",
	} {
		if !names[name] {
			t.Errorf("%s is not in the module", name)
		}
	}
	for name := range names {
		if strings.HasPrefix(name, "suite/") || strings.HasPrefix(name, "opentelemetry/") {
			t.Errorf("%s is in the module", name)
		}
	}
	t.Cleanup(func() {
		cache := strings.TrimSpace(newProject(t, proxy, "empty.test").run("env", "GOMODCACHE"))
		download := filepath.Join("cache", "download", path)
		for _, name := range []string{path + "@" + version, path + "/opentelemetry@" + version, download} {
			must(t, os.RemoveAll(filepath.Join(cache, name)))
		}
	})
	return proxy
}

// add puts the module in a folder into the proxy, with its go.mod edited, and returns the names of its files.
func add(t *testing.T, proxy, module, root string, edit func(string) string) map[string]bool {
	t.Helper()
	folder := filepath.Join(proxy, module, "@v")
	must(t, os.MkdirAll(folder, 0o755))
	source, err := os.ReadFile(filepath.Join(root, "go.mod"))
	must(t, err)
	mod := []byte(edit(string(source)))
	var packed bytes.Buffer
	files := zip.NewWriter(&packed)
	names := map[string]bool{}
	must(t, filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			_, noModule := os.Stat(filepath.Join(file, "go.mod"))
			if file != root && noModule == nil {
				return fs.SkipDir // a separate module
			}
			return nil
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		names[name] = true
		content := mod
		if name != "go.mod" {
			if content, err = os.ReadFile(file); err != nil {
				return err
			}
		}
		target, err := files.Create(module + "@" + version + "/" + name)
		if err != nil {
			return err
		}
		_, err = target.Write(content)
		return err
	}))
	must(t, files.Close())
	must(t, os.WriteFile(filepath.Join(folder, version+".zip"), packed.Bytes(), 0o644))
	must(t, os.WriteFile(filepath.Join(folder, version+".mod"), mod, 0o644))
	must(t, os.WriteFile(filepath.Join(folder, version+".info"), []byte(`{"Version":"`+version+`"}`), 0o644))
	must(t, os.WriteFile(filepath.Join(folder, "list"), []byte(version+"\n"), 0o644))
	return names
}

// project is a Go module with nothing but serverlock, which comes from the proxy.
type project struct {
	t      *testing.T
	folder string
	env    []string
}

func newProject(t *testing.T, proxy, name string) *project {
	t.Helper()
	proxies, err := exec.Command("go", "env", "GOPROXY").Output()
	must(t, err)
	p := &project{t: t, folder: t.TempDir()}
	p.env = append(os.Environ(),
		"GOPROXY=file://"+filepath.ToSlash(proxy)+","+strings.TrimSpace(string(proxies)),
		"GONOSUMDB="+path, "GOFLAGS=-modcacherw", "GOWORK=off")
	p.run("mod", "init", name)
	return p
}

func (p *project) run(words ...string) string {
	p.t.Helper()
	output, err := p.try(words...)
	if err != nil {
		p.t.Fatalf("go %s: %v\n%s", strings.Join(words, " "), err, output)
	}
	return output
}

func (p *project) try(words ...string) (string, error) {
	command := exec.Command("go", words...)
	command.Dir, command.Env = p.folder, p.env
	output, err := command.CombinedOutput()
	return string(output), err
}

func (p *project) write(name, content string) {
	p.t.Helper()
	must(p.t, os.WriteFile(filepath.Join(p.folder, name), []byte(content), 0o644))
}

func TestTheReadmeExamplesRunInAnEmptyProject(t *testing.T) {
	address := startServer(t)
	readme, err := os.ReadFile("README.md")
	must(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	drivers := []struct {
		name, own, other string
		says             []string // one for each example
	}{
		{"goredis", "go-redis", "gomodule", []string{"working, token 1", "after a crash: false\nran\n", "42 pages, token 1"}},
		{"redigo", "gomodule", "go-redis", []string{"held to the end: true"}},
	}
	proxy := publish(t)
	count := 0
	inMemory := func(block string) bool { return strings.Contains(block, path+"/locktest") }
	for _, driver := range drivers {
		p := newProject(t, proxy, driver.name+".test")
		p.run("get", path+"/"+driver.name+"@"+version)
		says := driver.says
		for _, block := range blocks {
			if !strings.Contains(block[1], path+"/"+driver.name) {
				continue
			}
			example := strings.ReplaceAll(block[1], "localhost:6379", address)
			if example == block[1] || len(says) == 0 {
				t.Fatalf("the example does not name the server, or is a new one:\n%s", example)
			}
			p.write("main.go", example)
			p.run("vet", ".")
			if output := p.run("run", "."); !strings.Contains(output, says[0]) {
				t.Errorf("%s printed %s", driver.name, output)
			}
			says = says[1:]
			count++
		}
		if len(says) > 0 {
			t.Errorf("the README has no example that prints %q", says)
		}
		if driver.name == "goredis" {
			runExample(t, p, address)
			for _, block := range blocks {
				if inMemory(block[1]) {
					p.write("main_test.go", block[1])
					p.run("test", ".")
					count++
				}
			}
		}
		// Users of one library do not get the other library.
		p.run("mod", "tidy")
		needs, err := os.ReadFile(filepath.Join(p.folder, "go.mod"))
		must(t, err)
		if !strings.Contains(string(needs), driver.own) || strings.Contains(string(needs), driver.other) {
			t.Errorf("%s needs\n%s", driver.name, needs)
		}
	}
	if len(blocks) != count {
		t.Errorf("%d of the README's %d examples ran", count, len(blocks))
	}
}

const traced = `package main

import (
	"example.com/serverlock"
	"example.com/serverlock/goredis"
	"example.com/serverlock/opentelemetry"
	"github.com/redis/go-redis/v9"
)

func main() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	_ = serverlock.New(goredis.New(client), serverlock.WithHooks(opentelemetry.Hooks()))
}
`

// A user's build ignores the replace line of the module for OpenTelemetry, and takes the version that it requires.
func TestTheModuleForOpenTelemetryBuildsInAnEmptyProject(t *testing.T) {
	proxy := publish(t)
	required := regexp.MustCompile(`(?m)^(\t` + path + ` )v[1-9]\S*$`)
	add(t, proxy, path+"/opentelemetry", "opentelemetry", func(mod string) string {
		if !required.MatchString(mod) {
			t.Fatalf("it requires a version that is never released:\n%s", mod)
		}
		return required.ReplaceAllString(mod, "${1}"+version)
	})
	p := newProject(t, proxy, "traced.test")
	p.write("main.go", traced)
	p.run("get", path+"/opentelemetry@"+version, path+"/goredis")
	p.run("vet", ".")
}

// runExample runs the repository's example, with one step of work.
func runExample(t *testing.T, p *project, address string) {
	t.Helper()
	text, err := os.ReadFile("../../examples/go/report.go")
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	must(t, err)
	example := strings.ReplaceAll(string(text), "localhost:6379", address)
	if example == string(text) {
		t.Error("the example connects in a different way")
	}
	p.write("main.go", strings.ReplaceAll(example, "step < 10", "step < 1"))
	p.run("vet", ".")
	if output := p.run("run", "."); !strings.HasPrefix(output, "working, token 1") {
		t.Errorf("the example printed %s", output)
	}
}

func TestTheScriptMatchesTheRepository(t *testing.T) {
	mine, err := os.ReadFile("lock.lua")
	must(t, err)
	source, err := os.ReadFile("../../portable/lock.lua")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no repository")
	}
	must(t, err)
	if !bytes.Equal(mine, source) {
		t.Error("lock.lua is not portable/lock.lua")
	}
}
