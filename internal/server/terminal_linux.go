package server

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// hideInput keeps a terminal from showing what is typed; false if f is none.
func hideInput(f *os.File) (restore func(), ok bool) {
	fd := int(f.Fd())
	was, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, false
	}
	hidden := *was
	hidden.Lflag &^= unix.ECHO
	if unix.IoctlSetTermios(fd, unix.TCSETS, &hidden) != nil {
		return nil, false
	}
	show := func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, was) } // there is nobody to tell
	// Whoever gives up at the question wants to see again what is typed.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, unix.SIGINT, unix.SIGTERM)
	go func() {
		if _, ok := <-interrupts; ok {
			show()
			os.Exit(exitFault)
		}
	}()
	return func() {
		signal.Stop(interrupts)
		close(interrupts)
		show()
	}, true
}
