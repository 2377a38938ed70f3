// Package wire is the programs' side of driver.py: one JSON object in, one out.
package wire

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"sync"
)

const (
	Earliest = -2
	Latest   = -1
	// NoCode is for errors that are the client's own.
	NoCode = -1001
)

type Header struct {
	Key   string  `json:"key"`
	Value *[]byte `json:"value"`
}

type Message struct {
	Key       *[]byte  `json:"key"`
	Value     *[]byte  `json:"value"`
	Headers   []Header `json:"headers"`
	Timestamp *int64   `json:"timestamp"`
	Partition *int32   `json:"partition"`
}

type Record struct {
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"`
	Key       *[]byte  `json:"key"`
	Value     *[]byte  `json:"value"`
	Headers   []Header `json:"headers"`
}

type Acked struct {
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Error     *int16 `json:"error,omitempty"`
}

type Request struct {
	Op         string            `json:"op"`
	Topic      string            `json:"topic"`
	Partitions int32             `json:"partitions"`
	Partition  int32             `json:"partition"`
	Configs    map[string]string `json:"configs"`
	Count      int32             `json:"count"`
	Type       int8              `json:"type"`
	Name       string            `json:"name"`
	Key        string            `json:"key"`
	Value      *string           `json:"value"`
	Offset     int64             `json:"offset"`
	At         int64             `json:"at"`
	MaxWaitMs  int32             `json:"max_wait_ms"`
	Messages   []Message         `json:"messages"`
	Acks       int16             `json:"acks"`
	Codec      string            `json:"codec"`
	Idempotent bool              `json:"idempotent"`
	LingerMs   int               `json:"linger_ms"`
	AutoCreate bool              `json:"auto_create"`
	PatienceMs int               `json:"patience_ms"`
	Group      string            `json:"group"`
	Assignor   string            `json:"assignor"`
	SessionMs  int               `json:"session_ms"`
	MaxPollMs  int               `json:"max_poll_ms"`
}

var (
	in     = json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20))
	out    = bufio.NewWriterSize(os.Stdout, 1<<20)
	saying sync.Mutex
)

// Op answers a request; emit sends a record ahead of the answer.
type Op func(request Request, emit func(Record)) (any, error)

// Serve answers requests until there are no more. code finds Kafka's error code in an error.
func Serve(ops map[string]Op, code func(error) int16) {
	for {
		var request Request
		if in.Decode(&request) != nil {
			return
		}
		answer, err := run(ops, request, func(record Record) { Say(map[string]any{"event": record}) })
		if err != nil {
			Say(map[string]any{"error": code(err), "message": err.Error()})
		} else {
			Say(map[string]any{"ok": answer})
		}
	}
}

// Say writes a line, which is an answer or what an op has to tell ahead of it; callbacks may call it.
func Say(answer any) {
	line, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	saying.Lock()
	defer saying.Unlock()
	out.Write(append(line, '\n'))
	out.Flush()
}

// Over is closed when there are no more requests; for an op that goes on as long as there is somebody to ask.
func Over() <-chan struct{} {
	over := make(chan struct{})
	go func() {
		for request := (Request{}); in.Decode(&request) == nil; {
		}
		close(over)
	}()
	return over
}

func run(ops map[string]Op, request Request, emit func(Record)) (any, error) {
	op, found := ops[request.Op]
	if !found {
		return nil, errors.New("no such op: " + request.Op)
	}
	return op(request, emit)
}

// Bytes is nil for null, and not nil for empty.
func Bytes(value *[]byte) []byte {
	if value == nil {
		return nil
	}
	if *value == nil {
		return []byte{}
	}
	return *value
}

// Pointer is null for nil.
func Pointer(value []byte) *[]byte {
	if value == nil {
		return nil
	}
	return &value
}
