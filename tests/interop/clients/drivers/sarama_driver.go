// sarama as a driver; steps.py says how it is spoken to.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

var acknowledgements = map[string]sarama.RequiredAcks{
	"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll,
}

var bootstrap = os.Args[1:2]

type driver struct {
	client sarama.Client
	admin  sarama.ClusterAdmin
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Net.MaxOpenRequests = 1
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.MaxMessageBytes = maxRecord
	config.Producer.Flush.Frequency = 20 * time.Millisecond
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.Return.Errors = true
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	return config
}

func (d driver) createTopic(step Step) (any, error) {
	configs := make(map[string]*string)
	for name, value := range step.Configs {
		configs[name] = &value
	}
	detail := &sarama.TopicDetail{NumPartitions: step.partitionCount(), ReplicationFactor: 1, ConfigEntries: configs}
	return nil, d.admin.CreateTopic(step.Topic, detail, false)
}

func (d driver) addPartitions(step Step) (any, error) {
	return nil, d.admin.CreatePartitions(step.Topic, step.partitionCount(), nil, false)
}

func (d driver) deleteTopic(step Step) (any, error) {
	return nil, d.admin.DeleteTopic(step.Topic)
}

func (d driver) describeTopic(step Step) (any, error) {
	topics, err := d.admin.DescribeTopics([]string{step.Topic})
	if err != nil {
		return nil, err
	}
	if topics[0].Err != sarama.ErrNoError {
		return nil, topics[0].Err
	}
	return result{"partitions": len(topics[0].Partitions)}, nil
}

func (d driver) describeCluster(Step) (any, error) {
	brokers, controller, err := d.admin.DescribeCluster()
	cluster := Cluster{Controller: controller}
	for _, broker := range brokers {
		host, port, _ := net.SplitHostPort(broker.Addr())
		number, _ := strconv.Atoi(port)
		cluster.Brokers = append(cluster.Brokers, Broker{broker.ID(), host, int32(number)})
	}
	return cluster, err
}

func (d driver) describeConfigs(step Step) (any, error) {
	entries, err := d.admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: step.Topic})
	configs := make(map[string]string)
	for _, entry := range entries {
		configs[entry.Name] = entry.Value
	}
	return configs, err
}

func (d driver) alterConfigs(step Step) (any, error) {
	changes := make(map[string]sarama.IncrementalAlterConfigsEntry)
	for name, value := range step.Configs {
		changes[name] = sarama.IncrementalAlterConfigsEntry{
			Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value,
		}
	}
	return nil, d.admin.IncrementalAlterConfig(sarama.TopicResource, step.Topic, changes, false)
}

func (d driver) deleteRecords(step Step) (any, error) {
	if err := d.admin.DeleteRecords(step.Topic, map[int32]int64{step.Partition: step.Before}); err != nil {
		return nil, err
	}
	offset, err := d.client.GetOffset(step.Topic, step.Partition, sarama.OffsetOldest)
	return result{"low_watermark": offset}, err
}

func (d driver) listOffsets(step Step) (any, error) {
	name, timestamp := step.at()
	special := map[string]int64{"earliest": sarama.OffsetOldest, "latest": sarama.OffsetNewest}
	if value, is := special[name]; is {
		timestamp = value
	}
	asked := map[string]map[int32]int64{step.Topic: {step.Partition: timestamp}}
	answers, err := d.admin.ListOffsets(asked, nil)
	if err != nil {
		return nil, err
	}
	answer := answers[step.Topic][step.Partition]
	if answer.Err != sarama.ErrNoError {
		return nil, answer.Err
	}
	return result{"offset": answer.Offset}, nil
}

func (d driver) produce(step Step) (any, error) {
	config := settings()
	config.Producer.RequiredAcks = acknowledgements[step.Acks]
	config.Producer.Compression = codecs[step.Codec]
	config.Producer.Idempotent = step.Idempotent
	producer, err := sarama.NewSyncProducer(bootstrap, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, len(step.Records))
	for index, record := range step.Records {
		message := &sarama.ProducerMessage{Topic: step.Topic, Partition: record.Partition}
		if record.Key != nil {
			message.Key = sarama.ByteEncoder(record.Key)
		}
		if record.Value != nil {
			message.Value = sarama.ByteEncoder(record.Value)
		}
		if record.Timestamp != nil {
			message.Timestamp = time.UnixMilli(*record.Timestamp)
		}
		for _, header := range record.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
		}
		messages[index] = message
	}
	if err := producer.SendMessages(messages); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(messages))
	for index, message := range messages {
		offsets[index] = message.Offset
	}
	return result{"offsets": offsets}, nil
}

func (d driver) consume(step Step) (any, error) {
	consumer, err := sarama.NewConsumer(bootstrap, settings())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	messages := make(chan *sarama.ConsumerMessage)
	failures := make(chan error, 1)
	done := make(chan struct{})
	defer close(done)
	for _, partition := range step.partitionList() {
		start, err := d.startOffset(step, partition)
		if err != nil {
			return nil, err
		}
		reading, err := consumer.ConsumePartition(step.Topic, partition, start)
		if err != nil {
			return nil, err
		}
		defer reading.AsyncClose()
		go forward(reading, messages, failures, done)
	}
	return collect(step.Count, messages, failures)
}

func (d driver) startOffset(step Step, partition int32) (int64, error) {
	if step.Start.Timestamp == nil {
		return *step.Start.Offset, nil
	}
	return d.client.GetOffset(step.Topic, partition, *step.Start.Timestamp)
}

func forward(
	reading sarama.PartitionConsumer, messages chan<- *sarama.ConsumerMessage, failures chan<- error, done <-chan struct{},
) {
	for {
		select {
		case message, open := <-reading.Messages():
			if !open {
				return
			}
			select {
			case messages <- message:
			case <-done:
				return
			}
		case failure := <-reading.Errors():
			if failure != nil {
				select {
				case failures <- failure.Err:
				default:
				}
			}
		case <-done:
			return
		}
	}
}

func collect(count int, messages <-chan *sarama.ConsumerMessage, failures <-chan error) (any, error) {
	var found []Record
	deadline := time.After(wait)
	for len(found) < count {
		select {
		case message := <-messages:
			timestamp := message.Timestamp.UnixMilli()
			headers := []Header{}
			for _, header := range message.Headers {
				headers = append(headers, Header{string(header.Key), header.Value})
			}
			found = append(found, Record{
				message.Partition, message.Offset, &timestamp, message.Key, message.Value, headers,
			})
		case failure := <-failures:
			return nil, failure
		case <-deadline:
			return nil, fmt.Errorf("only %d of %d records came", len(found), count)
		}
	}
	return result{"records": found}, nil
}

func transactional(step Step) (sarama.SyncProducer, error) {
	config := settings()
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Transaction.ID = step.TransactionalID
	return sarama.NewSyncProducer(bootstrap, config)
}

func (d driver) transact(step Step) (any, error) {
	producer, err := transactional(step)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	if err := producer.BeginTxn(); err != nil {
		return nil, err
	}
	var messages []*sarama.ProducerMessage
	for _, value := range step.Values {
		messages = append(messages, &sarama.ProducerMessage{Topic: step.Topic, Value: sarama.ByteEncoder(value)})
	}
	if err := producer.SendMessages(messages); err != nil {
		return nil, err
	}
	if step.Commit {
		return nil, producer.CommitTxn()
	}
	return nil, producer.AbortTxn()
}

// copier is the handler of a group of one: each message is a transaction of its own.
type copier struct {
	step     Step
	producer sarama.SyncProducer
	copied   int
	done     func()
	failure  error
}

func (*copier) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *copier) ConsumeClaim(_ sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for c.copied < c.step.Count {
		message, open := <-claim.Messages()
		if !open {
			return nil
		}
		if c.failure = c.copyOne(message); c.failure != nil {
			break
		}
		c.copied++
	}
	c.done()
	return nil
}

func (c *copier) copyOne(message *sarama.ConsumerMessage) error {
	if err := c.producer.BeginTxn(); err != nil {
		return err
	}
	copied := &sarama.ProducerMessage{Topic: c.step.Target, Value: sarama.ByteEncoder(message.Value)}
	if _, _, err := c.producer.SendMessage(copied); err != nil {
		return err
	}
	if err := c.producer.AddMessageToTxn(message, c.step.Group, nil); err != nil {
		return err
	}
	return c.producer.CommitTxn()
}

func (d driver) copy(step Step) (any, error) {
	producer, err := transactional(step)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	config := settings()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	group, err := sarama.NewConsumerGroup(bootstrap, step.Group, config)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	deadline, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	handler := &copier{step: step, producer: producer, done: cancel}
	for handler.copied < step.Count && handler.failure == nil && deadline.Err() == nil {
		if err := group.Consume(deadline, []string{step.Source}, handler); err != nil {
			return nil, err
		}
	}
	if handler.copied < step.Count && handler.failure == nil {
		return nil, fmt.Errorf("only %d of %d records came", handler.copied, step.Count)
	}
	return nil, handler.failure
}

// groupReader reads until it has enough, then commits; without a count it only notes what it is assigned.
type groupReader struct {
	mutex  sync.Mutex
	topic  string
	count  int
	owned  []int32
	values [][]byte
	done   context.CancelFunc
}

func (r *groupReader) Setup(session sarama.ConsumerGroupSession) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.owned = session.Claims()[r.topic]
	return nil
}

func (r *groupReader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (r *groupReader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, is := <-claim.Messages():
			if !is {
				return nil
			}
			if r.count > 0 {
				r.take(session, message)
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (r *groupReader) take(session sarama.ConsumerGroupSession, message *sarama.ConsumerMessage) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.values = append(r.values, message.Value)
	session.MarkMessage(message, "")
	if len(r.values) == r.count {
		session.Commit()
		r.done()
	}
}

func (r *groupReader) list() []int32 {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.owned
}

// join makes a member that works until the context ends; what is returned ends the membership.
func (r *groupReader) join(work context.Context, step Step) (func(), error) {
	config := settings()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	group, err := sarama.NewConsumerGroup(bootstrap, step.Group, config)
	if err != nil {
		return nil, err
	}
	work, cancel := context.WithCancel(work)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for work.Err() == nil {
			if err := group.Consume(work, []string{step.Topic}, r); err != nil {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
		group.Close()
	}, nil
}

func (d driver) readInGroup(step Step) (any, error) {
	deadline, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	reader := &groupReader{topic: step.Topic, count: step.Count, done: cancel}
	leave, err := reader.join(deadline, step)
	if err != nil {
		return nil, err
	}
	<-deadline.Done()
	leave()
	if len(reader.values) < step.Count {
		return nil, fmt.Errorf("only %d of %d records came", len(reader.values), step.Count)
	}
	return result{"values": reader.values}, nil
}

func (d driver) shareInGroup(step Step) (any, error) {
	one, two := &groupReader{topic: step.Topic}, &groupReader{topic: step.Topic}
	leaveFirst, err := one.join(context.Background(), step)
	if err != nil {
		return nil, err
	}
	defer leaveFirst()
	leaveSecond, err := two.join(context.Background(), step)
	if err != nil {
		return nil, err
	}
	shares, err := shared(step, one.list, two.list)
	leaveSecond()
	if err != nil {
		return nil, err
	}
	return result{"shares": shares}, until(func() bool { return len(one.list()) == int(step.partitionCount()) })
}

func codeOf(err error) *int16 {
	var several sarama.ProducerErrors
	if errors.As(err, &several) {
		err = several[0].Err
	}
	var refused sarama.KError
	if errors.As(err, &refused) {
		code := int16(refused)
		return &code
	}
	return nil
}

func main() {
	client, err := sarama.NewClient(bootstrap, settings())
	must(err)
	admin, err := sarama.NewClusterAdminFromClient(client)
	must(err)
	d := driver{client, admin}
	serve(map[string]func(Step) (any, error){
		"hello":            hello("github.com/IBM/sarama"),
		"create_topic":     d.createTopic,
		"add_partitions":   d.addPartitions,
		"delete_topic":     d.deleteTopic,
		"describe_topic":   d.describeTopic,
		"describe_cluster": d.describeCluster,
		"describe_configs": d.describeConfigs,
		"alter_configs":    d.alterConfigs,
		"delete_records":   d.deleteRecords,
		"list_offsets":     d.listOffsets,
		"produce":          d.produce,
		"consume":          d.consume,
		"transact":         d.transact,
		"copy":             d.copy,
		"read_in_group":    d.readInGroup,
		"share_in_group":   d.shareInGroup,
	}, codeOf)
}
