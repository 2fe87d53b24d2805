// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// picture is a plot with both axes logarithmic, light or dark as its reader's page.
type picture struct {
	file, title, unit string
	lines             []line
}

// line is one of a picture; each point has how many there are and a value. Values that are not positive are left out.
type line struct {
	name   string
	points [][2]float64
}

// The drawing area, in px of the picture.
const (
	plotWidth, plotHeight = 720, 400
	plotLeft, plotRight   = 60, 600 // names of lines are right of it
	plotTop, plotBottom   = 50, 350
	nameHeight            = 16
)

const plotStyle = `<style>
text { font: 13px sans-serif; fill: #1f2328 } .title { font-size: 16px } .page { fill: #fff } .grid { stroke: #d1d9e0 }
.c0 { --c: #0550ae } .c1 { --c: #a40e26 } .c2 { --c: #116329 } .c3 { --c: #6639ba } .c4 { --c: #953800 }
polyline { fill: none; stroke: var(--c); stroke-width: 2 } circle { fill: var(--c) } .name { fill: var(--c) }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .page { fill: #0d1117 } .grid { stroke: #3d444d }
.c0 { --c: #79c0ff } .c1 { --c: #ffa198 } .c2 { --c: #7ee787 } .c3 { --c: #d2a8ff } .c4 { --c: #ffa657 } }
</style>
`

// axis maps values onto px by their logarithm.
type axis struct{ first, last, from, to float64 }

func (a axis) at(value float64) float64 {
	return a.from + (math.Log10(value)-a.first)/(a.last-a.first)*(a.to-a.from)
}

// axisOf has all values between two powers of ten.
func axisOf(values []float64, from, to float64) axis {
	first, last := math.Floor(math.Log10(slices.Min(values))), math.Ceil(math.Log10(slices.Max(values)))
	return axis{first, max(last, first+1), from, to}
}

func (p picture) svg() string {
	var xs, ys []float64
	for i, l := range p.lines {
		p.lines[i].points = slices.DeleteFunc(slices.Clone(l.points), func(at [2]float64) bool { return at[1] <= 0 })
		for _, at := range p.lines[i].points {
			xs, ys = append(xs, at[0]), append(ys, at[1])
		}
	}
	var out, said strings.Builder
	x, y := axisOf(xs, plotLeft, plotRight), axisOf(ys, plotBottom, plotTop)
	for e := x.first; e <= x.last; e++ {
		at := x.at(math.Pow(10, e))
		fmt.Fprintf(&out, "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
			at, plotTop, plotBottom, at, plotBottom+20, grouped(int(math.Pow(10, e))))
	}
	for e := y.first; e <= y.last; e++ {
		at := y.at(math.Pow(10, e))
		fmt.Fprintf(&out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n",
			plotLeft, at, plotRight, plotLeft-6, at+4, math.Pow(10, e))
	}
	names := p.names(y)
	for i, l := range p.lines {
		if len(l.points) == 0 {
			continue
		}
		var path, dots strings.Builder
		fmt.Fprintf(&said, " %s:", l.name)
		for _, at := range l.points {
			fmt.Fprintf(&path, "%.1f,%.1f ", x.at(at[0]), y.at(at[1]))
			fmt.Fprintf(&dots, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>", x.at(at[0]), y.at(at[1]))
			fmt.Fprintf(&said, " %s with %s,", short(at[1]), grouped(int(at[0])))
		}
		fmt.Fprintf(&out, "<g class=\"c%d\"><polyline points=\"%s\"/>%s", i, strings.TrimSpace(path.String()), dots.String())
		fmt.Fprintf(&out, "<text class=\"name\" x=\"%d\" y=\"%.1f\">%s</text></g>\n", plotRight+10, names[i]+4, l.name)
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">
<title id="title">%s</title>
<desc id="desc">%s, by how many there are.%s</desc>
%s<rect class="page" width="%d" height="%d"/>
<text class="title" x="%d" y="22">%s</text><text x="%d" y="42">%s</text>
<text x="%d" y="%d" text-anchor="middle">how many there are</text>
`, plotWidth, plotHeight, p.title, p.unit, strings.TrimSuffix(said.String(), ","), plotStyle, plotWidth, plotHeight,
		plotLeft, p.title, plotLeft, p.unit, (plotLeft+plotRight)/2, plotBottom+40) + out.String() + "</svg>\n"
}

// names returns how high the name of each line stands: beside its last point, but below the name above it.
func (p picture) names(y axis) []float64 {
	heights, order := make([]float64, len(p.lines)), []int{}
	for i, l := range p.lines {
		if len(l.points) > 0 {
			heights[i], order = y.at(l.points[len(l.points)-1][1]), append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(heights[a], heights[b]) })
	for i, at := range order[min(1, len(order)):] {
		heights[at] = max(heights[at], heights[order[i]]+nameHeight)
	}
	return heights
}
