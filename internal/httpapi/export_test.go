package httpapi

import "strings"

// RouteNames gives "METHOD shape" of every row and method of the route table, for
// tests that send real requests.
func RouteNames() []string {
	var names []string
	for _, r := range routeTable() {
		for _, method := range strings.Split(r.methods, ",") {
			names = append(names, method+" "+r.shape)
		}
	}
	return names
}
