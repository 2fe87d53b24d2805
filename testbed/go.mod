module github.com/liqo-go/liqo/testbed

go 1.26
