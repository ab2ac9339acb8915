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
	folder := filepath.Join(proxy, path, "@v")
	must(t, os.MkdirAll(folder, 0o755))
	var packed bytes.Buffer
	files := zip.NewWriter(&packed)
	names := map[string]bool{}
	must(t, filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			_, noModule := os.Stat(filepath.Join(name, "go.mod"))
			if name != "." && noModule == nil {
				return fs.SkipDir // a separate module
			}
			return nil
		}
		names[name] = true
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := files.Create(path + "@" + version + "/" + name)
		if err != nil {
			return err
		}
		_, err = file.Write(content)
		return err
	}))
	must(t, files.Close())
	for _, name := range []string{
		"README.md", "LICENSE", "go.mod", "lock.lua", "goredis/goredis.go", "redigo/redigo.go", "redsync/redsync.go",
		"redislock/redislock.go", "locktest/locktest.go",
	} {
		if !names[name] {
			t.Errorf("%s is not in the module", name)
		}
	}
	for name := range names {
		if strings.HasPrefix(name, "suite/") {
			t.Errorf("%s is in the module", name)
		}
	}
	mod, err := os.ReadFile("go.mod")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(folder, version+".zip"), packed.Bytes(), 0o644))
	must(t, os.WriteFile(filepath.Join(folder, version+".mod"), mod, 0o644))
	must(t, os.WriteFile(filepath.Join(folder, version+".info"), []byte(`{"Version":"`+version+`"}`), 0o644))
	must(t, os.WriteFile(filepath.Join(folder, "list"), []byte(version+"\n"), 0o644))
	t.Cleanup(func() {
		cache := strings.TrimSpace(newProject(t, proxy, "empty.test").run("env", "GOMODCACHE"))
		for _, name := range []string{path + "@" + version, filepath.Join("cache", "download", path)} {
			must(t, os.RemoveAll(filepath.Join(cache, name)))
		}
	})
	return proxy
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
		{"goredis", "go-redis", "gomodule", []string{"working, token 1", "after a crash: false\nran\n"}},
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
