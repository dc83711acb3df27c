// The loop of the drivers in Go; steps.py says how they are spoken to.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"
)

const (
	round        = 20 // records that a stream has in flight
	wait         = 100 * time.Second
	maxLineBytes = 64 << 20
	maxRecord    = 8 << 20
)

// Step holds the parameters of every step; a []byte is base 64 in JSON, and nil is null.
type Step struct {
	Do         string
	Topic      string
	Partition  int32
	Partitions json.RawMessage // a count, or for consume a list
	Configs    map[string]string
	Before     int64
	At         json.RawMessage // a name or a timestamp
	Acks       string
	Codec      string
	Idempotent bool
	Records    []Record
	Start      struct {
		Offset    *int64
		Timestamp *int64
	}
	Count int

	TransactionalID string `json:"transactional_id"`
	Values          [][]byte
	Commit          bool
	Source          string
	Target          string
	Group           string

	Bootstrap string
	Security  Security
	Until     string
}

// Security is how clients log in from now on; what is not needed is empty.
type Security struct {
	Protocol  string
	Mechanism string
	Username  string
	Password  string
	CA        string // a file
	Token     string // a file
}

type Record struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp *int64   `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers"`
}

// Header travels as a pair of name and value.
type Header struct {
	Name  string
	Value []byte
}

func (header Header) MarshalJSON() ([]byte, error) {
	return json.Marshal([2]any{header.Name, header.Value})
}

func (header *Header) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[2]any{&header.Name, &header.Value})
}

type Broker struct {
	ID   int32  `json:"id"`
	Host string `json:"host"`
	Port int32  `json:"port"`
}

type Cluster struct {
	ClusterID  *string  `json:"cluster_id"`
	Controller int32    `json:"controller"`
	Brokers    []Broker `json:"brokers"`
}

func (step Step) partitionCount() (count int32) {
	must(json.Unmarshal(step.Partitions, &count))
	return count
}

func (step Step) partitionList() (partitions []int32) {
	must(json.Unmarshal(step.Partitions, &partitions))
	return partitions
}

// at is a name, or "" and a timestamp.
func (step Step) at() (name string, timestamp int64) {
	if json.Unmarshal(step.At, &name) != nil {
		must(json.Unmarshal(step.At, &timestamp))
	}
	return name, timestamp
}

type result = map[string]any

// serve answers every step until the input ends; codeOf finds the error code in the client's errors.
func serve(steps map[string]func(Step) (any, error), codeOf func(error) *int16) {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, maxLineBytes)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var step Step
		must(json.Unmarshal(lines.Bytes(), &step))
		var reply any
		if found, err := run(steps[step.Do], step); err != nil {
			reply = result{"error": result{"code": codeOf(err), "message": err.Error()}}
		} else {
			reply = result{"ok": found}
		}
		must(answers.Encode(reply))
	}
	must(lines.Err())
}

func run(do func(Step) (any, error), step Step) (any, error) {
	if do == nil {
		return nil, errors.New("no step " + step.Do)
	}
	return do(step)
}

func hello(module string) func(Step) (any, error) {
	return func(Step) (any, error) {
		info, _ := debug.ReadBuildInfo()
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				return result{"version": dependency.Version[len("v"):]}, nil
			}
		}
		return nil, errors.New(module + " is not in this program")
	}
}

func must(err error) {
	if err != nil {
		panic(fmt.Sprint("the test and its driver do not understand each other: ", err))
	}
}

// shared waits until two members have all partitions of a topic between them, and tells how many each has.
func shared(step Step, one, two func() []int32) ([]int, error) {
	err := until(func() bool {
		first, second := len(one()), len(two())
		return first > 0 && second > 0 && first+second == int(step.partitionCount())
	})
	return []int{len(one()), len(two())}, err
}

// exists is how a test ends a stream.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func until(condition func() bool) error {
	for deadline := time.Now().Add(wait); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.New("the members did not come to terms")
		}
	}
	return nil
}
