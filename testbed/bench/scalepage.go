// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// What docs/scale.md shows of docs/scale.json: tables between markers, and pictures.

const (
	scaleFile, scalePage = "scale.json", "scale.md"
	// What a row of the tables is worth at the largest size: ms of CPU for one more, and MB. Heaps of Go vary by more
	// than half of that.
	leastCPU, leastMemory = 0.5, 5.0
)

// machineName says what measurements ran on.
func machineName() (string, error) {
	info, err := os.ReadFile("/proc/cpuinfo")
	model := regexp.MustCompile(`(?m)^model name\s*: (.*)$`).FindSubmatch(info)
	if model == nil {
		return "", errors.Join(err, errors.New("/proc/cpuinfo has no model name"))
	}
	return fmt.Sprintf("%d cores of %s", runtime.NumCPU(), model[1]), nil
}

func readSeries(docs string) (all []series, err error) {
	content, err := os.ReadFile(filepath.Join(docs, scaleFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(content, &all)
}

// keepSeries writes a series in place of the one of its name.
func keepSeries(docs string, s series) error {
	all, err := readSeries(docs)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(all, func(former series) bool { return former.Name == s.Name }); i >= 0 {
		all[i] = s
	} else {
		all = append(all, s)
	}
	content, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(docs, scaleFile), append(content, '\n'), 0o644)
}

// drawScale writes what scaleFiles returns.
func drawScale(docs string) error {
	files, err := scaleFiles(docs)
	for name, content := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(docs, name), []byte(content), 0o644))
	}
	return err
}

// scaleFiles returns the page and its pictures, by their paths below docs, as the points make them.
func scaleFiles(docs string) (map[string]string, error) {
	all, err := readSeries(docs)
	if err != nil {
		return nil, err
	}
	page, err := os.ReadFile(filepath.Join(docs, scalePage))
	if err != nil {
		return nil, err
	}
	text, blocks := string(page), map[string]string{"growth": growth(all)}
	for _, s := range all {
		blocks[s.Name] = s.table()
	}
	for _, name := range sortedKeys(blocks) {
		begin, end := "<!-- "+name+": make scale -->\n", "<!-- end of "+name+" -->\n"
		before, rest, begins := strings.Cut(text, begin)
		_, after, ends := strings.Cut(rest, end)
		if !begins || !ends {
			return nil, fmt.Errorf("%s lacks %q or, after it, %q", scalePage, begin, end)
		}
		text = before + begin + "\n" + blocks[name] + "\n" + end + after
	}
	files := map[string]string{scalePage: text}
	for _, p := range pictures(all) {
		files[p.file] = p.svg()
	}
	return files, nil
}

func pictures(all []series) []picture {
	lines := func(value func(former, p point) float64) (out []line) {
		for _, s := range all {
			l := line{name: s.Name}
			for i, p := range s.Points[1:] {
				l.points = append(l.points, [2]float64{float64(p.N), value(s.Points[i], p)})
			}
			out = append(out, l)
		}
		return out
	}
	none := func(s series) map[string]float64 { return s.Points[0].Memory }
	memory := lines(func(_, p point) float64 { return total(p.Memory) })
	for i, s := range all {
		for j := range memory[i].points {
			memory[i].points[j][1] -= total(none(s))
		}
	}
	return []picture{
		{"images/scale-cpu.svg", "CPU that Liqo takes for one more", "ms of all processes in both clusters",
			lines(func(former, p point) float64 { return total(ours(p.CPU)) * 1000 / float64(p.N-former.N) })},
		{"images/scale-memory.svg", "Memory that Liqo takes more than with none", "MB of all processes in both clusters", memory},
		{"images/scale-time.svg", "Time until those that came last are in place", "seconds",
			lines(func(_, p point) float64 { return p.Seconds })},
	}
}

// ours are the processes of Liqo.
func ours(cpu map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for name, used := range cpu {
		if strings.Contains(name, " liqo ") {
			out[name] = used
		}
	}
	return out
}

func total(values map[string]float64) (sum float64) {
	for _, name := range sortedKeys(values) { // always in the same order, so that the sum is the same
		sum += values[name]
	}
	return sum
}

// table has a column for each size.
func (s series) table() string {
	none, points, all := s.Points[0], s.Points[1:], math.Inf(-1)
	out := fmt.Sprintf("%s, %s, `%s`.\n\n| %s |", s.Date, s.Machine, s.Version, s.Name)
	for _, p := range points {
		out += " " + grouped(p.N) + " |"
	}
	out += "\n|---|" + strings.Repeat("---|", len(points)) + "\n"
	row := func(name string, least float64, value func(former, p point) float64) {
		line, last := "| "+name+" |", 0.0
		for i, p := range points {
			last = value(s.Points[i], p)
			line += " " + short(last) + " |"
		}
		if last >= least {
			out += line + "\n"
		}
	}
	each := func(seconds func(point) float64) func(former, p point) float64 {
		return func(former, p point) float64 { return seconds(p) * 1000 / float64(p.N-former.N) }
	}
	row("seconds until those that came last are in place", all, func(_, p point) float64 { return p.Seconds })
	row("ms of CPU for one more, API servers and etcd", all, each(func(p point) (sum float64) {
		for _, cluster := range []string{"rome ", "milan "} {
			sum += p.CPU[cluster+"kube-apiserver"] + p.CPU[cluster+"etcd"]
		}
		return sum
	}))
	row("ms of CPU for one more, Liqo", all, each(func(p point) float64 { return total(ours(p.CPU)) }))
	for _, name := range sortedKeys(none.Memory) {
		row("– "+plain(name), leastCPU, each(func(p point) float64 { return p.CPU[name] }))
	}
	row("MB more, Liqo", all, func(_, p point) float64 { return total(p.Memory) - total(none.Memory) })
	for _, name := range sortedKeys(none.Memory) {
		row("– "+plain(name), leastMemory, func(_, p point) float64 { return p.Memory[name] - none.Memory[name] })
	}
	row("ms of CPU a second while nothing happens, Liqo", all, func(_, p point) float64 { return total(p.Idle) })
	return out
}

// plain says which process "rome liqo gateway" is.
func plain(name string) string {
	cluster, role, _ := strings.Cut(name, " liqo ")
	return strings.Replace(role, "kubelet", "virtual kubelet", 1) + " of " + cluster
}

// short has two or three digits that count.
func short(v float64) string {
	switch {
	case v >= 9.95:
		return grouped(int(v + 0.5))
	case v > -9.95:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// grouped has a comma before each three digits, from 10,000 on.
func grouped(n int) string {
	text := fmt.Sprint(n)
	if n < 10_000 {
		return text
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// growth says what ten and a hundred times as many would take if each took what the last ones measured took.
func growth(all []series) string {
	out := "| | measured | 10 times | 100 times |\n|---|---|---|---|\n"
	for _, s := range all {
		last := len(s.Points) - 1
		former, p := s.Points[last-1], s.Points[last]
		at := func(value func(point) float64, factor int) float64 {
			slope := (value(p) - value(former)) / float64(p.N-former.N)
			return value(p) + max(0, slope)*float64((factor-1)*p.N)
		}
		row := func(name string, value func(point) float64, show func(float64) string) {
			out += fmt.Sprintf("| %s | %s | %s | %s |\n", name, show(at(value, 1)), show(at(value, 10)), show(at(value, 100)))
		}
		row(s.Name, func(p point) float64 { return float64(p.N) }, func(v float64) string { return "**" + grouped(int(v)) + "**" })
		sum := func(value func(point) float64) func(point) float64 {
			return func(until point) (sum float64) {
				for _, p := range s.Points {
					if p.N <= until.N {
						sum += value(p)
					}
				}
				return sum
			}
		}
		row("– until all are in place", sum(func(p point) float64 { return p.Seconds }), duration)
		row("– CPU of Liqo for that", sum(func(p point) float64 { return total(ours(p.CPU)) }), duration)
		name := largest(former, p)
		row("– memory, "+plain(name), func(p point) float64 { return p.Memory[name] }, func(v float64) string { return short(v) + " MB" })
	}
	return out
}

// largest is the process whose memory grew most in the last step.
func largest(former, p point) string {
	return slices.MaxFunc(sortedKeys(p.Memory), func(a, b string) int {
		return cmp.Compare(p.Memory[a]-former.Memory[a], p.Memory[b]-former.Memory[b])
	})
}

func duration(seconds float64) string {
	switch {
	case seconds < 100:
		return short(seconds) + " s"
	case seconds < 100*60:
		return short(seconds/60) + " min"
	}
	return short(seconds/3600) + " h"
}
