#!/bin/bash
# Guess: a StringToString flag is a list of pairs in CSV however many there are, so --m a=1,b is an error.
# Behaviour: with one "=" the whole argument is one pair. A comma is part of the value, and of quotes the last goes and
# the first stays. One pair more, and the same text is read as CSV: commas separate, quotes quote.
# Version: github.com/spf13/pflag v1.0.10. Flags like --labels accept a value with a comma until a second label follows.
set -euo pipefail
export GOTOOLCHAIN=go1.26.8 GOWORK=off CGO_ENABLED=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export GOMODCACHE=$folder/modules GOFLAGS='-modcacherw -trimpath' # so a package that is gone is missed
mkdir "$folder/run" && cd "$folder/run"

cat > go.mod <<-'END'
	module example.com/pairs
	go 1.26
	require github.com/spf13/pflag v1.0.10
END
cat > main.go <<-'END'
	package main

	import (
		"fmt"
		"os"

		"github.com/spf13/pflag"
	)

	func main() {
		for _, arg := range os.Args[1:] {
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			m := flags.StringToString("m", nil, "")
			err := flags.Parse([]string{"--m=" + arg})
			fmt.Printf("%s -> %q, %v\n", arg, *m, err)
		}
	}
END
go mod tidy
seen=$(go run . 'a=1,b' 'a=1,b,c=2' 'a="x,y"' '"a=x,y",c=2')
echo "github.com/spf13/pflag v1.0.10: argument -> value, error"
echo "$seen"
[ "$seen" = 'a=1,b -> map["a":"1,b"], <nil>
a=1,b,c=2 -> map[], invalid argument "a=1,b,c=2" for "--m" flag: b must be formatted as key=value
a="x,y" -> map["a":"\"x,y"], <nil>
"a=x,y",c=2 -> map["a":"x,y" "c":"2"], <nil>' ]
