// Command box is all that the images of a real node hold: what a sandbox and a container need to show
// what they were given. It is also the first process of a node's namespaces.
//
//	box pause        wait for a signal, and reap what is left behind
//	box env          print the environment and wait for a signal
//	box env once     print the environment and end
//	box ignore       print the environment and wait until killed
//	box fail         end with 1
//	box list FOLDER  print the names in a folder
//	box show FILE    print a file
package main

import (
	"fmt"
	"os"
	"os/signal"
	"sort"
	"strings"
	"syscall"
)

func main() {
	arguments := os.Args[1:]
	if len(arguments) == 0 {
		arguments = []string{"pause"}
	}
	switch arguments[0] {
	case "pause":
		wait()
	case "env":
		printEnvironment()
		if len(arguments) == 1 {
			wait()
		}
	case "ignore":
		// For a pod that does not end before it is killed.
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		printEnvironment()
		select {}
	case "fail":
		os.Exit(1)
	case "list":
		entries, err := os.ReadDir(arguments[1])
		exitOn(err)
		for _, entry := range entries {
			fmt.Println(entry.Name())
		}
	case "show":
		content, err := os.ReadFile(arguments[1])
		exitOn(err)
		os.Stdout.Write(content)
	default:
		fmt.Fprintf(os.Stderr, "box: no such word: %s\n", strings.Join(arguments, " "))
		os.Exit(2)
	}
}

func printEnvironment() {
	variables := os.Environ()
	sort.Strings(variables)
	for _, variable := range variables {
		fmt.Println(variable)
	}
}

func wait() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for got := range signals {
		if got != syscall.SIGCHLD {
			return
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "box:", err)
		os.Exit(1)
	}
}
