package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
)

// answerLines writes one line of JSON for each line of its input, until that
// ends. An error of answer ends it at once: nothing is answered in its place.
func answerLines[T any](in io.Reader, out io.Writer, answer func(line []byte) (T, error)) error {
	lines, answers := bufio.NewReader(in), json.NewEncoder(out)
	answers.SetEscapeHTML(false)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		given, err := answer(line)
		if err != nil {
			return err
		}
		if err := answers.Encode(given); err != nil {
			return err
		}
	}
}
