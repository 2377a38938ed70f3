// The verbs of driver.py with sarama.
package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"pybroker/interop/wire"

	"github.com/IBM/sarama"
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	return config
}

func main() {
	seeds := []string{os.Args[1]}
	client, err := sarama.NewClient(seeds, settings())
	if err != nil {
		panic(err)
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		panic(err)
	}
	wire.Serve(map[string]wire.Op{
		"create_topic": func(r wire.Request, _ func(wire.Record)) (any, error) {
			configs := map[string]*string{}
			for key, value := range r.Configs {
				configs[key] = &value
			}
			detail := &sarama.TopicDetail{NumPartitions: r.Partitions, ReplicationFactor: 1, ConfigEntries: configs}
			return nil, admin.CreateTopic(r.Topic, detail, false)
		},
		"delete_topic": func(r wire.Request, _ func(wire.Record)) (any, error) { return nil, admin.DeleteTopic(r.Topic) },
		"create_partitions": func(r wire.Request, _ func(wire.Record)) (any, error) {
			return nil, admin.CreatePartitions(r.Topic, r.Count, nil, false)
		},
		"list_topics": func(wire.Request, func(wire.Record)) (any, error) {
			found, err := admin.DescribeTopics(nil)
			counts := map[string]int{}
			for _, topic := range found {
				counts[topic.Name] = len(topic.Partitions)
			}
			return counts, err
		},
		"describe_topic": func(r wire.Request, _ func(wire.Record)) (any, error) {
			found, err := admin.DescribeTopics([]string{r.Topic})
			if err == nil && found[0].Err != sarama.ErrNoError {
				err = found[0].Err
			}
			if err != nil {
				return nil, err
			}
			rows := [][]any{}
			for _, row := range found[0].Partitions {
				rows = append(rows, []any{row.ID, row.Leader, row.Replicas, row.Isr})
			}
			return rows, nil
		},
		"describe_configs": func(r wire.Request, _ func(wire.Record)) (any, error) {
			rows, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.ConfigResourceType(r.Type), Name: r.Name})
			values := map[string]string{}
			for _, row := range rows {
				values[row.Name] = row.Value
			}
			return values, err
		},
		"alter_config": func(r wire.Request, _ func(wire.Record)) (any, error) {
			change := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: r.Value}
			if r.Value == nil {
				change.Operation = sarama.IncrementalAlterConfigsOperationDelete
			}
			changes := map[string]sarama.IncrementalAlterConfigsEntry{r.Key: change}
			return nil, admin.IncrementalAlterConfig(sarama.ConfigResourceType(r.Type), r.Name, changes, false)
		},
		"delete_records": func(r wire.Request, _ func(wire.Record)) (any, error) {
			return -1, admin.DeleteRecords(r.Topic, map[int32]int64{r.Partition: r.Offset})
		},
		"list_offset": func(r wire.Request, _ func(wire.Record)) (any, error) {
			return client.GetOffset(r.Topic, r.Partition, r.At)
		},
		"produce":       func(r wire.Request, _ func(wire.Record)) (any, error) { return produce(seeds, r) },
		"tail":          func(r wire.Request, emit func(wire.Record)) (any, error) { return nil, tail(seeds, r, emit) },
		"read_as_group": func(r wire.Request, _ func(wire.Record)) (any, error) { return readAsGroup(seeds, r) },
	}, code)
}

func produce(seeds []string, r wire.Request) ([]wire.Acked, error) {
	config := settings()
	config.Metadata.AllowAutoTopicCreation = r.AutoCreate
	config.Metadata.Retry.Backoff = time.Duration(r.PatienceMs/10) * time.Millisecond
	config.Producer.RequiredAcks = sarama.RequiredAcks(r.Acks)
	config.Producer.Compression = codecs[r.Codec]
	config.Producer.Flush.Frequency = time.Duration(r.LingerMs) * time.Millisecond
	config.Producer.MaxMessageBytes = 100_000_000
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = func(topic string) sarama.Partitioner { return named{sarama.NewHashPartitioner(topic)} }
	config.ChannelBufferSize = 1024
	if r.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewAsyncProducer(seeds, config)
	if err != nil {
		return nil, err
	}
	defer producer.AsyncClose()
	acked := make([]wire.Acked, len(r.Messages))
	go func() {
		for index, message := range r.Messages {
			one := &sarama.ProducerMessage{Topic: r.Topic, Partition: -1, Metadata: index}
			if message.Key != nil {
				one.Key = sarama.ByteEncoder(wire.Bytes(message.Key))
			}
			if message.Value != nil {
				one.Value = sarama.ByteEncoder(wire.Bytes(message.Value))
			}
			if message.Partition != nil {
				one.Partition = *message.Partition
			}
			if message.Timestamp != nil {
				one.Timestamp = time.UnixMilli(*message.Timestamp)
			}
			for _, header := range message.Headers {
				one.Headers = append(one.Headers, sarama.RecordHeader{Key: []byte(header.Key), Value: wire.Bytes(header.Value)})
			}
			producer.Input() <- one
		}
	}()
	for range r.Messages {
		select {
		case sent := <-producer.Successes():
			acked[sent.Metadata.(int)] = wire.Acked{Partition: sent.Partition, Offset: sent.Offset}
		case failed := <-producer.Errors():
			found := code(failed.Err)
			acked[failed.Msg.Metadata.(int)] = wire.Acked{Partition: failed.Msg.Partition, Offset: -1, Error: &found}
		}
	}
	return acked, nil
}

// named sends a message to the partition it names, and the others where the key says.
type named struct{ sarama.Partitioner }

func (p named) Partition(message *sarama.ProducerMessage, count int32) (int32, error) {
	if message.Partition >= 0 {
		return message.Partition, nil
	}
	return p.Partitioner.Partition(message, count)
}

func tail(seeds []string, r wire.Request, emit func(wire.Record)) error {
	config := settings()
	config.Consumer.MaxWaitTime = time.Duration(r.MaxWaitMs) * time.Millisecond
	config.Consumer.Return.Errors = true
	config.Net.ReadTimeout = config.Consumer.MaxWaitTime + 30*time.Second
	consumer, err := sarama.NewConsumer(seeds, config)
	if err != nil {
		return err
	}
	// Closing waits for the fetch under way, which may be a long one.
	defer func() { go consumer.Close() }()
	partition, err := consumer.ConsumePartition(r.Topic, r.Partition, r.At)
	if err != nil {
		return err
	}
	defer partition.AsyncClose()
	for range r.Count {
		select {
		case record := <-partition.Messages():
			headers := []wire.Header{}
			for _, header := range record.Headers {
				headers = append(headers, wire.Header{Key: string(header.Key), Value: wire.Pointer(header.Value)})
			}
			emit(wire.Record{
				Offset: record.Offset, Timestamp: record.Timestamp.UnixMilli(), Key: wire.Pointer(record.Key),
				Value: wire.Pointer(record.Value), Headers: headers,
			})
		case failed := <-partition.Errors():
			return failed.Err
		}
	}
	return nil
}

// reading takes count records and commits them.
type reading struct {
	count  int
	guard  sync.Mutex
	places [][2]int64
	done   context.CancelFunc
}

func (r *reading) Setup(sarama.ConsumerGroupSession) error { return nil }

func (r *reading) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (r *reading) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case record := <-claim.Messages():
			if record == nil {
				return nil
			}
			r.guard.Lock()
			r.places = append(r.places, [2]int64{int64(record.Partition), record.Offset})
			session.MarkMessage(record, "")
			if len(r.places) == r.count {
				r.done()
			}
			r.guard.Unlock()
		case <-session.Context().Done():
			return nil
		}
	}
}

func readAsGroup(seeds []string, r wire.Request) ([][2]int64, error) {
	config := settings()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	group, err := sarama.NewConsumerGroup(seeds, r.Group, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	reader := &reading{count: int(r.Count), done: cancel}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{r.Topic}, reader); err != nil {
			return nil, err
		}
	}
	return reader.places, group.Close()
}

func code(err error) int16 {
	var found sarama.KError
	if errors.As(err, &found) {
		return int16(found)
	}
	var topic *sarama.TopicError
	if errors.As(err, &topic) {
		return int16(topic.Err)
	}
	var partition *sarama.TopicPartitionError
	if errors.As(err, &partition) {
		return int16(partition.Err)
	}
	return wire.NoCode
}
