// The verbs of driver.py with franz-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"pybroker/interop/wire"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

var balancers = map[string]kgo.GroupBalancer{
	"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
	"sticky": kgo.StickyBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

var acks = map[int16]kgo.Acks{-1: kgo.AllISRAcks(), 0: kgo.NoAck(), 1: kgo.LeaderAck()}

func main() {
	seed := kgo.SeedBrokers(strings.Split(os.Args[1], ",")...)
	shared, err := kgo.NewClient(seed, kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		panic(err)
	}
	admin := kadm.NewClient(shared)
	ctx := context.Background()
	wire.Serve(map[string]wire.Op{
		"create_topic": func(r wire.Request, _ func(wire.Record)) (any, error) {
			configs := map[string]*string{}
			for key, value := range r.Configs {
				configs[key] = &value
			}
			_, err := admin.CreateTopic(ctx, r.Partitions, 1, configs, r.Topic)
			return nil, err
		},
		"delete_topic": func(r wire.Request, _ func(wire.Record)) (any, error) {
			_, err := admin.DeleteTopic(ctx, r.Topic)
			return nil, err
		},
		"create_partitions": func(r wire.Request, _ func(wire.Record)) (any, error) {
			answers, err := admin.UpdatePartitions(ctx, int(r.Count), r.Topic)
			if err == nil {
				err = answers.Error()
			}
			return nil, err
		},
		"list_topics": func(wire.Request, func(wire.Record)) (any, error) {
			found, err := admin.ListTopicsWithInternal(ctx)
			if err != nil {
				return nil, err
			}
			counts := map[string]int{}
			for name, topic := range found {
				counts[name] = len(topic.Partitions)
			}
			return counts, nil
		},
		"describe_topic": func(r wire.Request, _ func(wire.Record)) (any, error) {
			found, err := admin.ListTopics(ctx, r.Topic)
			if err == nil {
				err = found.Error()
			}
			if err != nil {
				return nil, err
			}
			rows := [][]any{}
			for _, row := range found[r.Topic].Partitions.Sorted() {
				rows = append(rows, []any{row.Partition, row.Leader, row.Replicas, row.ISR})
			}
			return rows, nil
		},
		"describe_configs": func(r wire.Request, _ func(wire.Record)) (any, error) {
			var found kadm.ResourceConfigs
			var err error
			if r.Type == 2 {
				found, err = admin.DescribeTopicConfigs(ctx, r.Name)
			} else {
				id, _ := strconv.Atoi(r.Name)
				found, err = admin.DescribeBrokerConfigs(ctx, int32(id))
			}
			if err != nil {
				return nil, err
			}
			resource, err := found.On(r.Name, nil)
			if err == nil {
				err = resource.Err
			}
			values := map[string]*string{}
			for _, row := range resource.Configs {
				values[row.Key] = row.Value
			}
			return values, err
		},
		"alter_config": func(r wire.Request, _ func(wire.Record)) (any, error) {
			change := kadm.AlterConfig{Op: kadm.SetConfig, Name: r.Key, Value: r.Value}
			if r.Value == nil {
				change.Op = kadm.DeleteConfig
			}
			answers, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, r.Name)
			if err != nil {
				return nil, err
			}
			answer, err := answers.On(r.Name, nil)
			if err == nil {
				err = answer.Err
			}
			return nil, err
		},
		"delete_records": func(r wire.Request, _ func(wire.Record)) (any, error) {
			offsets := kadm.Offsets{}
			offsets.AddOffset(r.Topic, r.Partition, r.Offset, -1)
			answers, err := admin.DeleteRecords(ctx, offsets)
			if err == nil {
				err = answers.Error()
			}
			if err != nil {
				return nil, err
			}
			answer, _ := answers.Lookup(r.Topic, r.Partition)
			return answer.LowWatermark, nil
		},
		"list_offset": func(r wire.Request, _ func(wire.Record)) (any, error) {
			var found kadm.ListedOffsets
			var err error
			switch r.At {
			case wire.Earliest:
				found, err = admin.ListStartOffsets(ctx, r.Topic)
			case wire.Latest:
				found, err = admin.ListEndOffsets(ctx, r.Topic)
			default:
				found, err = admin.ListOffsetsAfterMilli(ctx, r.At, r.Topic)
			}
			if err == nil {
				err = found.Error()
			}
			if err != nil {
				return nil, err
			}
			row, _ := found.Lookup(r.Topic, r.Partition)
			return row.Offset, nil
		},
		"produce":       func(r wire.Request, _ func(wire.Record)) (any, error) { return produce(ctx, seed, r) },
		"tail":          func(r wire.Request, emit func(wire.Record)) (any, error) { return nil, tail(ctx, seed, r, emit) },
		"read_as_group": func(r wire.Request, _ func(wire.Record)) (any, error) { return readAsGroup(ctx, seed, r) },
		"member":        func(r wire.Request, _ func(wire.Record)) (any, error) { return nil, member(ctx, seed, r) },
	}, code)
}

func produce(ctx context.Context, seed kgo.Opt, r wire.Request) ([]wire.Acked, error) {
	options := []kgo.Opt{
		seed, kgo.RequiredAcks(acks[r.Acks]), kgo.ProducerBatchCompression(codecs[r.Codec]),
		kgo.ProducerLinger(time.Duration(r.LingerMs) * time.Millisecond), kgo.ProducerBatchMaxBytes(100_000_000),
		kgo.RecordPartitioner(named{kgo.StickyKeyPartitioner(nil)}), kgo.BrokerMaxWriteBytes(200_000_000),
	}
	if !r.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if r.AutoCreate {
		options = append(options, kgo.AllowAutoTopicCreation())
	} else {
		options = append(options, kgo.UnknownTopicRetries(1))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	acked := make([]wire.Acked, len(r.Messages))
	var left sync.WaitGroup
	for index, message := range r.Messages {
		record := &kgo.Record{Topic: r.Topic, Key: wire.Bytes(message.Key), Value: wire.Bytes(message.Value), Partition: -1}
		if message.Partition != nil {
			record.Partition = *message.Partition
		}
		if message.Timestamp != nil {
			record.Timestamp = time.UnixMilli(*message.Timestamp)
		}
		for _, header := range message.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Key, Value: wire.Bytes(header.Value)})
		}
		left.Add(1)
		client.Produce(ctx, record, func(sent *kgo.Record, err error) {
			acked[index] = wire.Acked{Partition: sent.Partition, Offset: sent.Offset}
			if err != nil {
				found := code(err)
				acked[index].Error = &found
			}
			left.Done()
		})
	}
	left.Wait()
	return acked, nil
}

// named sends a record to the partition it names, and the others where the key says.
type named struct{ kgo.Partitioner }

func (p named) ForTopic(topic string) kgo.TopicPartitioner {
	return namedTopic{p.Partitioner.ForTopic(topic)}
}

type namedTopic struct{ kgo.TopicPartitioner }

func (p namedTopic) Partition(record *kgo.Record, count int) int {
	if record.Partition >= 0 {
		return int(record.Partition)
	}
	return p.TopicPartitioner.Partition(record, count)
}

func tail(ctx context.Context, seed kgo.Opt, r wire.Request, emit func(wire.Record)) error {
	start := kgo.NewOffset().At(r.At)
	switch r.At {
	case wire.Earliest:
		start = kgo.NewOffset().AtStart()
	case wire.Latest:
		start = kgo.NewOffset().AtEnd()
	}
	client, err := kgo.NewClient(
		seed, kgo.FetchMaxWait(time.Duration(r.MaxWaitMs)*time.Millisecond), kgo.FetchMaxPartitionBytes(1<<20),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.Topic: {r.Partition: start}}),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for left := r.Count; left > 0; {
		fetches := client.PollRecords(ctx, int(left))
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			headers := []wire.Header{}
			for _, header := range record.Headers {
				headers = append(headers, wire.Header{Key: header.Key, Value: wire.Pointer(header.Value)})
			}
			emit(wire.Record{
				Offset: record.Offset, Timestamp: record.Timestamp.UnixMilli(), Key: wire.Pointer(record.Key),
				Value: wire.Pointer(record.Value), Headers: headers,
			})
			left--
		})
	}
	return nil
}

func readAsGroup(ctx context.Context, seed kgo.Opt, r wire.Request) ([][2]int64, error) {
	client, err := kgo.NewClient(
		seed, kgo.ConsumerGroup(r.Group), kgo.ConsumeTopics(r.Topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	places := [][2]int64{}
	for len(places) < int(r.Count) {
		fetches := client.PollRecords(ctx, int(r.Count)-len(places))
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) { places = append(places, [2]int64{int64(record.Partition), record.Offset}) })
	}
	return places, client.CommitUncommittedOffsets(ctx)
}

// member does what group_member.py does, until there are no more requests.
func member(ctx context.Context, seed kgo.Opt, r wire.Request) error {
	tell := func(what string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, places map[string][]int32) {
			wire.Say(map[string]any{what: append([]int32{}, places[r.Topic]...)})
		}
	}
	client, err := kgo.NewClient(
		seed, kgo.ConsumerGroup(r.Group), kgo.ConsumeTopics(r.Topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.Balancers(balancers[r.Assignor]),
		kgo.SessionTimeout(time.Duration(r.SessionMs)*time.Millisecond), kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.RebalanceTimeout(time.Duration(r.MaxPollMs)*time.Millisecond),
		kgo.OnPartitionsAssigned(tell("assigned")), kgo.OnPartitionsRevoked(tell("revoked")), kgo.OnPartitionsLost(tell("revoked")),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for over := wire.Over(); ; {
		select {
		case <-over:
			return nil
		default:
		}
		patience, stop := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := client.PollFetches(patience)
		stop()
		fetches.EachError(func(_ string, partition int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) {
				fmt.Fprintln(os.Stderr, partition, err)
			}
		})
		fetches.EachRecord(func(record *kgo.Record) {
			wire.Say(map[string]any{"record": [2]int64{int64(record.Partition), record.Offset}})
		})
		if len(client.UncommittedOffsets()) > 0 {
			if err := client.CommitUncommittedOffsets(ctx); err != nil {
				wire.Say(map[string]any{"refused": err.Error()})
			}
		}
	}
}

func code(err error) int16 {
	var found *kerr.Error
	if errors.As(err, &found) {
		return found.Code
	}
	return wire.NoCode
}
