// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"slices"
)

// small returns a PNG with the 256 most frequent colours of another one, which takes less than half of the bytes: pages
// have few colours beside those that smooth letters.
func small(picture []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	count := map[color.Color]int{}
	for y := range from.Bounds().Dy() {
		for x := range from.Bounds().Dx() {
			count[from.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int {
		return cmp.Or(count[b]-count[a], cmp.Compare(rgb(a), rgb(b)))
	})
	palette := color.Palette(colours[:min(len(colours), 256)])
	nearest := map[color.Color]uint8{}
	for _, c := range colours {
		nearest[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(from.Bounds(), palette)
	for y := range from.Bounds().Dy() {
		for x := range from.Bounds().Dx() {
			to.SetColorIndex(x, y, nearest[from.At(x, y)])
		}
	}
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to)
	return out.Bytes(), err
}

// rgb orders colours.
func rgb(c color.Color) uint64 {
	r, g, b, _ := c.RGBA()
	return uint64(r)<<32 | uint64(g)<<16 | uint64(b)
}
