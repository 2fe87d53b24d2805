// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/liqo-go/liqo/dashboard"
	"github.com/liqo-go/liqo/view"
)

// views are the pages of the recorded clusters: path, link in the page before, heading.
var views = []struct{ path, link, heading string }{
	{"/", "Map", "Map"},
	{"/workloads", "Workloads", "Workloads"},
	{"/events", "Events", "Events"},
	{"/peers/milan", "milan", "Peer milan"},
	{"/peers/naples", "naples", "Peer naples"},
	{"/peers/turin", "turin", "Peer turin"},
	{"/peers/venice", "venice", "Peer venice"},
}

// demo serves the recorded clusters, and opens their first page.
type demo struct {
	*Browser
	snapshots *dashboard.Snapshots
	address   string
}

func startDemo(t *testing.T) *demo {
	t.Helper()
	recorded, err := dashboard.Demo()
	must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	d := &demo{snapshots: dashboard.NewSnapshots(recorded), address: "http://" + listener.Addr().String()}
	server := dashboard.New(d.snapshots, listener)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
	})
	d.Browser = start(t)
	must(t, d.Open(server.URL()), d.Await(limit, "h1", "Map"))
	return d
}

// TestDashboard: the dashboard does in a browser what docs/dashboard.md says.
func TestDashboard(t *testing.T) {
	d := startDemo(t)
	for _, sub := range []struct {
		name string
		test func(*testing.T, *demo)
	}{
		{"mouse", followLinks}, {"keyboard", typeOnly}, {"live", seeChanges}, {"structure", nameEverything},
		{"contrast", readEasily}, {"narrow", fitPhones}, {"no scripts", doWithoutScripts},
	} {
		t.Run(sub.name, func(t *testing.T) { sub.test(t, d) })
	}
	for _, c := range d.Complaints() {
		t.Error(c)
	}
}

// followLinks clicks from the map to each view.
func followLinks(t *testing.T, d *demo) {
	for _, v := range views {
		must(t, d.Open(d.address), d.Click(v.link), d.Await(limit, "h1", v.heading))
		var got string
		must(t, d.Eval("location.pathname + ' ' + document.title", &got))
		if !strings.HasPrefix(got, v.path+" "+v.heading) {
			t.Errorf("%s leads to %s", v.link, got)
		}
	}
}

// typeOnly goes from the map to each view with Tab and Enter. Everything that has the focus shows it.
func typeOnly(t *testing.T, d *demo) {
	for _, v := range views[1:] {
		must(t, d.Open(d.address))
		for pressed := 1; ; pressed++ {
			must(t, d.Press(Tab))
			var focus struct {
				Text    string
				Outline float64
			}
			must(t, d.Eval(`({ text: document.activeElement.innerText.trim(),
				outline: parseFloat(getComputedStyle(document.activeElement).outlineWidth) })`, &focus))
			if focus.Outline < 2 {
				t.Fatalf("it cannot be seen that %q has the focus", focus.Text)
			}
			if focus.Text == v.link {
				break
			}
			if pressed > 20 {
				t.Fatalf("%d times Tab do not lead to %q", pressed, v.link)
			}
		}
		must(t, d.Press(Enter), d.Await(limit, "h1", v.heading))
	}
	must(t, d.Open(d.address), d.Press(Tab), d.Press(Enter), d.Press(Tab))
	var first string
	if must(t, d.Eval("document.activeElement.innerText", &first)); first != "turin" {
		t.Errorf("the link to the content leads to %q", first)
	}
}

// seeChanges renews the snapshot below an open page, which keeps focus and open details.
func seeChanges(t *testing.T, d *demo) {
	recorded, _ := d.snapshots.Get()
	hidden := *recorded
	hidden.Hidden = map[string]string{"Secret": "may not list"}
	d.snapshots.Renew(func() *view.Snapshot { return &hidden })
	must(t, d.Open(d.address), d.Click("Not shown"), d.Await(limit, "details", "may not list"))
	broken := hidden
	broken.Connections.Items = append(broken.Connections.Items[:0:0], hidden.Connections.Items...)
	for i := range broken.Connections.Items {
		broken.Connections.Items[i].Status.Value = "Connecting"
	}
	d.snapshots.Renew(func() *view.Snapshot { return &broken })
	must(t, d.Await(limit, ".wire.down", "Connecting"), d.Await(limit, "#peer-turin", "Connecting"))
	var kept bool
	must(t, d.Eval(`document.activeElement.tagName === "SUMMARY" && document.querySelector("details").open`, &kept))
	if !kept {
		t.Error("the page lost focus or open details when it changed")
	}
	d.snapshots.Renew(func() *view.Snapshot { return recorded })
	must(t, d.Await(limit, "#peer-turin", "Connected"))
}

// nameEverything checks what screen readers announce: language, landmarks, headings, and names of links, tables,
// figures and regions that scroll.
func nameEverything(t *testing.T, d *demo) {
	for _, v := range views {
		must(t, d.Open(d.address+v.path))
		var lacks []string
		must(t, d.Eval(`(() => {
			const all = (selector) => [...document.querySelectorAll(selector)];
			const lacks = (what, elements) => elements.map((e) => what + ": " + e.outerHTML.slice(0, 120));
			const label = (e) => (e.getAttribute("aria-label") ?? document.getElementById(e.getAttribute("aria-labelledby"))
				?.textContent ?? e.textContent).trim();
			const level = (e) => Number(e.tagName[1]);
			const ids = all("[id]").map((e) => e.id);
			return [
				...["html[lang]", "header", "nav[aria-label]", "main", "h1", "[role=status]"].filter((s) => !all(s).length),
				...lacks("second", [...all("main").slice(1), ...all("h1").slice(1)]),
				...lacks("skipped level", all("h1,h2,h3,h4").filter((e, i, h) => i && level(e) > level(h[i - 1]) + 1)),
				...lacks("no name", all("a, summary, meter, section, [role=region]").filter((e) => !label(e))),
				...lacks("no name", all("section").filter((e) => !e.matches("[aria-label], [aria-labelledby], .card"))),
				...lacks("no headers", all("table").filter((e) => !e.querySelector("thead th[scope=col]"))),
				...lacks("no title", all("table").filter((e) => !e.caption && !e.closest("[aria-label], [aria-labelledby]"))),
				...lacks("no key reaches", all(".scroll").filter((e) => e.tabIndex < 0)),
				...lacks("leads nowhere", all("a[href^='#']").filter((e) => !ids.includes(e.hash.slice(1)))),
				...ids.filter((id, i) => ids.indexOf(id) !== i).map((id) => "second id " + id),
			];
		})()`, &lacks))
		for _, l := range lacks {
			t.Errorf("%s: %s", v.path, l)
		}
	}
}

// readEasily measures each text against what is behind it, in light and dark: WCAG asks for 4.5.
func readEasily(t *testing.T, d *demo) {
	for _, scheme := range []string{"dark", "light"} {
		must(t, d.Scheme(scheme))
		for _, v := range views {
			must(t, d.Open(d.address+v.path))
			var faint []string
			must(t, d.Eval(`(() => {
				const parse = (color) => color.match(/[\d.]+/g).map(Number);
				const luminance = (color) => parse(color).slice(0, 3).map((c) => c / 255).map(
					(c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
					.reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
				const behind = (e) => {
					for (; e; e = e.parentElement) {
						const color = getComputedStyle(e).backgroundColor;
						if ((parse(color)[3] ?? 1) === 1) return color;
					}
				};
				return [...document.querySelectorAll("body *")].filter((e) => [...e.childNodes].some(
					(n) => n.nodeType === Node.TEXT_NODE && n.nodeValue.trim())).flatMap((e) => {
					const [light, dark] = [getComputedStyle(e).color, behind(e)].map(luminance).sort((a, b) => b - a);
					const contrast = (light + 0.05) / (dark + 0.05);
					return contrast >= 4.5 ? [] : [contrast.toFixed(2) + ": " + e.outerHTML.slice(0, 120)];
				});
			})()`, &faint))
			for _, f := range faint {
				t.Errorf("%s, %s: contrast %s", v.path, scheme, f)
			}
		}
	}
}

// fitPhones opens each view in a window of 360 pixels, which is also one of 1280 at a zoom of 350 %: only tables
// scroll sideways. Letters and words stand as far apart as WCAG 1.4.12 asks pages to bear, so that a machine's wider
// fonts change nothing.
func fitPhones(t *testing.T, d *demo) {
	must(t, d.Resize(360, 640))
	for _, v := range views {
		must(t, d.Open(d.address+v.path))
		var wide []string
		must(t, d.Eval(`document.body.style.letterSpacing = "0.12em", document.body.style.wordSpacing = "0.16em", document.documentElement.scrollWidth <= 360 ? [] : [...document.querySelectorAll("body *")].filter(
			(e) => !e.closest(".scroll, .skip") && e.getBoundingClientRect().right > 360).map((e) => e.outerHTML.slice(0, 120))`,
			&wide))
		for _, w := range wide {
			t.Errorf("%s is too wide: %s", v.path, w)
		}
	}
	must(t, d.Resize(1280, 800))
}

// doWithoutScripts opens each view without JavaScript: nothing but the news is missing.
func doWithoutScripts(t *testing.T, d *demo) {
	for _, v := range views {
		must(t, d.Scripts(true), d.Open(d.address+v.path))
		with, err := d.Text("main")
		must(t, err, d.Scripts(false), d.Open(d.address+v.path), d.Await(limit, "header", "Reload the page"))
		without, err := d.Text("main")
		must(t, err)
		if with != without {
			t.Errorf("%s: without scripts the page shows\n%s\nand with them\n%s", v.path, without, with)
		}
	}
	must(t, d.Scripts(true))
}
