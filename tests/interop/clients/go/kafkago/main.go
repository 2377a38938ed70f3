// The verbs of driver.py with kafka-go.
package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"pybroker/interop/wire"

	"github.com/segmentio/kafka-go"
)

var codecs = map[string]kafka.Compression{
	"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func main() {
	address := os.Args[1]
	client := &kafka.Client{Addr: kafka.TCP(address), Timeout: 30 * time.Second}
	ctx := context.Background()
	// Not by the client, whose answers may be some seconds old.
	metadata := func(topics ...string) ([]kafka.Partition, error) {
		connection, err := kafka.Dial("tcp", address)
		if err != nil {
			return nil, err
		}
		defer connection.Close()
		return connection.ReadPartitions(topics...)
	}
	wire.Serve(map[string]wire.Op{
		"create_topic": func(r wire.Request, _ func(wire.Record)) (any, error) {
			topic := kafka.TopicConfig{Topic: r.Topic, NumPartitions: int(r.Partitions), ReplicationFactor: 1}
			for key, value := range r.Configs {
				topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: key, ConfigValue: value})
			}
			answer, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
			if err == nil {
				err = answer.Errors[r.Topic]
			}
			return nil, err
		},
		"delete_topic": func(r wire.Request, _ func(wire.Record)) (any, error) {
			answer, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{r.Topic}})
			if err == nil {
				err = answer.Errors[r.Topic]
			}
			return nil, err
		},
		"create_partitions": func(r wire.Request, _ func(wire.Record)) (any, error) {
			topics := []kafka.TopicPartitionsConfig{{Name: r.Topic, Count: r.Count}}
			answer, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: topics})
			if err == nil {
				err = answer.Errors[r.Topic]
			}
			return nil, err
		},
		"list_topics": func(wire.Request, func(wire.Record)) (any, error) {
			partitions, err := metadata()
			counts := map[string]int{}
			for _, partition := range partitions {
				counts[partition.Topic]++
			}
			return counts, err
		},
		"describe_topic": func(r wire.Request, _ func(wire.Record)) (any, error) {
			partitions, err := metadata(r.Topic)
			rows := [][]any{}
			for _, row := range partitions {
				rows = append(rows, []any{row.ID, row.Leader.ID, ids(row.Replicas), ids(row.Isr)})
			}
			return rows, err
		},
		"describe_configs": func(r wire.Request, _ func(wire.Record)) (any, error) {
			resource := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceType(r.Type), ResourceName: r.Name}
			request := &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{resource}}
			answer, err := client.DescribeConfigs(ctx, request)
			if err == nil {
				err = answer.Resources[0].Error
			}
			if err != nil {
				return nil, err
			}
			values := map[string]string{}
			for _, row := range answer.Resources[0].ConfigEntries {
				values[row.ConfigName] = row.ConfigValue
			}
			return values, nil
		},
		"alter_config": func(r wire.Request, _ func(wire.Record)) (any, error) {
			change := kafka.IncrementalAlterConfigsRequestConfig{Name: r.Key, ConfigOperation: kafka.ConfigOperationDelete}
			if r.Value != nil {
				change.Value = *r.Value
				change.ConfigOperation = kafka.ConfigOperationSet
			}
			resource := kafka.IncrementalAlterConfigsRequestResource{
				ResourceType: kafka.ResourceType(r.Type), ResourceName: r.Name,
				Configs: []kafka.IncrementalAlterConfigsRequestConfig{change},
			}
			request := &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{resource}}
			answer, err := client.IncrementalAlterConfigs(ctx, request)
			if err == nil {
				err = answer.Resources[0].Error
			}
			return nil, err
		},
		"list_offset": func(r wire.Request, _ func(wire.Record)) (any, error) {
			wanted := []kafka.OffsetRequest{{Partition: int(r.Partition), Timestamp: r.At}}
			request := &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{r.Topic: wanted}}
			answer, err := client.ListOffsets(ctx, request)
			if err != nil {
				return nil, err
			}
			found := answer.Topics[r.Topic][0]
			switch {
			case found.Error != nil:
				return nil, found.Error
			case r.At == wire.Earliest:
				return found.FirstOffset, nil
			case r.At == wire.Latest:
				return found.LastOffset, nil
			}
			for offset := range found.Offsets {
				return offset, nil
			}
			return -1, nil
		},
		"produce":       func(r wire.Request, _ func(wire.Record)) (any, error) { return produce(ctx, address, r) },
		"tail":          func(r wire.Request, emit func(wire.Record)) (any, error) { return nil, tail(ctx, address, r, emit) },
		"read_as_group": func(r wire.Request, _ func(wire.Record)) (any, error) { return readAsGroup(ctx, address, r) },
	}, code)
}

// place is where a message belongs: its index in the request, and the partition that it names, if any.
type place struct {
	index     int
	partition *int32
}

func produce(ctx context.Context, address string, r wire.Request) ([]wire.Acked, error) {
	acked := make([]wire.Acked, len(r.Messages))
	var guard sync.Mutex
	writer := &kafka.Writer{
		Addr: kafka.TCP(address), Topic: r.Topic, RequiredAcks: kafka.RequiredAcks(r.Acks), Compression: codecs[r.Codec],
		BatchTimeout: time.Duration(r.LingerMs+1) * time.Millisecond, BatchBytes: 100_000_000, BatchSize: 1000,
		AllowAutoTopicCreation: r.AutoCreate, Balancer: named{}, MaxAttempts: 1 + r.PatienceMs/1000,
		Transport: &kafka.Transport{MetadataTTL: time.Second},
		Completion: func(sent []kafka.Message, err error) {
			guard.Lock()
			defer guard.Unlock()
			for _, message := range sent {
				one := wire.Acked{Partition: int32(message.Partition), Offset: message.Offset}
				if err != nil {
					found := code(err)
					one.Error = &found
				}
				acked[message.WriterData.(place).index] = one
			}
		},
	}
	messages := make([]kafka.Message, len(r.Messages))
	for index, message := range r.Messages {
		one := kafka.Message{
			Key: wire.Bytes(message.Key), Value: wire.Bytes(message.Value), WriterData: place{index, message.Partition},
		}
		if message.Timestamp != nil {
			one.Time = time.UnixMilli(*message.Timestamp)
		}
		for _, header := range message.Headers {
			one.Headers = append(one.Headers, kafka.Header{Key: header.Key, Value: wire.Bytes(header.Value)})
		}
		messages[index] = one
	}
	err := writer.WriteMessages(ctx, messages...)
	// kafka-go makes a topic by asking for it, and leaves it to the application to try again.
	for deadline := time.Now().Add(time.Duration(r.PatienceMs) * time.Millisecond); time.Now().Before(deadline); {
		if !r.AutoCreate || !errors.Is(err, kafka.UnknownTopicOrPartition) {
			break
		}
		time.Sleep(50 * time.Millisecond)
		err = writer.WriteMessages(ctx, messages...)
	}
	writer.Close()
	var several kafka.WriteErrors
	if err != nil && !errors.As(err, &several) {
		// Refused before any partition was picked.
		found := code(err)
		for index := range acked {
			acked[index] = wire.Acked{Partition: -1, Offset: -1, Error: &found}
		}
	}
	return acked, nil
}

// named sends a message to the partition it names, and the others where the key says.
type named struct{}

func (named) Balance(message kafka.Message, partitions ...int) int {
	if wanted := message.WriterData.(place).partition; wanted != nil {
		return int(*wanted)
	}
	return kafka.Murmur2Balancer{Consistent: true}.Balance(message, partitions...)
}

func tail(ctx context.Context, address string, r wire.Request, emit func(wire.Record)) error {
	wait := time.Duration(r.MaxWaitMs) * time.Millisecond
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{address}, Topic: r.Topic, Partition: int(r.Partition), MinBytes: 1, MaxBytes: 1 << 20,
		MaxWait: wait, ReadBatchTimeout: wait + 30*time.Second,
	})
	// Closing waits for the fetch under way, which may be a long one.
	defer func() { go reader.Close() }()
	if err := reader.SetOffset(r.At); err != nil {
		return err
	}
	for range r.Count {
		record, err := reader.ReadMessage(ctx)
		if err != nil {
			return err
		}
		headers := []wire.Header{}
		for _, header := range record.Headers {
			headers = append(headers, wire.Header{Key: header.Key, Value: wire.Pointer(header.Value)})
		}
		emit(wire.Record{
			Offset: record.Offset, Timestamp: record.Time.UnixMilli(), Key: wire.Pointer(record.Key),
			Value: wire.Pointer(record.Value), Headers: headers,
		})
	}
	return nil
}

func readAsGroup(ctx context.Context, address string, r wire.Request) ([][2]int64, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{address}, Topic: r.Topic, GroupID: r.Group, StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond,
	})
	places := [][2]int64{}
	for range r.Count {
		record, err := reader.FetchMessage(ctx)
		if err != nil {
			return nil, err
		}
		places = append(places, [2]int64{int64(record.Partition), record.Offset})
		if err := reader.CommitMessages(ctx, record); err != nil {
			return nil, err
		}
	}
	return places, reader.Close()
}

func ids(brokers []kafka.Broker) []int {
	found := []int{}
	for _, broker := range brokers {
		found = append(found, broker.ID)
	}
	return found
}

func code(err error) int16 {
	var found kafka.Error
	if errors.As(err, &found) {
		return int16(found)
	}
	var several kafka.WriteErrors
	if errors.As(err, &several) {
		for _, one := range several {
			if errors.As(one, &found) {
				return int16(found)
			}
		}
	}
	return wire.NoCode
}
