// franz-go as a driver; steps.py says how it is spoken to.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var acknowledgements = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

type driver struct{ admin *kadm.Client }

// connection is what every client is made with.
var connection = []kgo.Opt{kgo.SeedBrokers(os.Args[1])}

func client(options ...kgo.Opt) *kgo.Client {
	options = append(options, connection...)
	made, err := kgo.NewClient(append(options, kgo.FetchMaxWait(100*time.Millisecond))...)
	must(err)
	return made
}

func (d driver) use(step Step) (any, error) {
	connection = []kgo.Opt{kgo.SeedBrokers(step.Bootstrap)}
	security := step.Security
	if strings.HasSuffix(security.Protocol, "SSL") {
		certificates, err := os.ReadFile(security.CA)
		must(err)
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(certificates)
		connection = append(connection, kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}))
	}
	switch security.Mechanism {
	case "PLAIN":
		login := plain.Auth{User: security.Username, Pass: security.Password}
		connection = append(connection, kgo.SASL(login.AsMechanism()))
	case "SCRAM-SHA-256":
		login := scram.Auth{User: security.Username, Pass: security.Password}
		connection = append(connection, kgo.SASL(login.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		login := scram.Auth{User: security.Username, Pass: security.Password}
		connection = append(connection, kgo.SASL(login.AsSha512Mechanism()))
	case "OAUTHBEARER":
		connection = append(connection, kgo.SASL(oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := os.ReadFile(security.Token)
			return oauth.Auth{Token: string(token)}, err
		})))
	}
	return nil, nil
}

func (d driver) stream(step Step) (any, error) {
	producer := client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	deadline, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	sent := 0
	for !exists(step.Until) {
		records := make([]*kgo.Record, round)
		for index := range records {
			records[index] = &kgo.Record{Topic: step.Topic, Value: []byte(strconv.Itoa(sent + index))}
		}
		if err := producer.ProduceSync(deadline, records...).FirstErr(); err != nil {
			return nil, err
		}
		sent += round
	}
	return result{"sent": sent}, nil
}

func (d driver) createTopic(step Step) (any, error) {
	configs := make(map[string]*string)
	for name, value := range step.Configs {
		configs[name] = &value
	}
	answer, err := d.admin.CreateTopic(context.Background(), step.partitionCount(), 1, configs, step.Topic)
	return nil, errors.Join(err, answer.Err)
}

func (d driver) addPartitions(step Step) (any, error) {
	answers, err := d.admin.UpdatePartitions(context.Background(), int(step.partitionCount()), step.Topic)
	return nil, errors.Join(err, answers.Error())
}

func (d driver) deleteTopic(step Step) (any, error) {
	answer, err := d.admin.DeleteTopic(context.Background(), step.Topic)
	return nil, errors.Join(err, answer.Err)
}

func (d driver) describeTopic(step Step) (any, error) {
	topics, err := d.admin.ListTopics(context.Background(), step.Topic)
	if err = errors.Join(err, topics[step.Topic].Err); err != nil {
		return nil, err
	}
	return result{"partitions": len(topics[step.Topic].Partitions)}, nil
}

func (d driver) describeCluster(Step) (any, error) {
	found, err := d.admin.BrokerMetadata(context.Background())
	cluster := Cluster{ClusterID: &found.Cluster, Controller: found.Controller}
	for _, broker := range found.Brokers {
		cluster.Brokers = append(cluster.Brokers, Broker{broker.NodeID, broker.Host, broker.Port})
	}
	return cluster, err
}

func (d driver) describeConfigs(step Step) (any, error) {
	found, err := d.admin.DescribeTopicConfigs(context.Background(), step.Topic)
	if err != nil {
		return nil, err
	}
	resource, err := found.On(step.Topic, nil)
	configs := make(map[string]*string)
	for _, config := range resource.Configs {
		configs[config.Key] = config.Value
	}
	return configs, errors.Join(err, resource.Err)
}

func (d driver) alterConfigs(step Step) (any, error) {
	var changes []kadm.AlterConfig
	for name, value := range step.Configs {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	answers, err := d.admin.AlterTopicConfigs(context.Background(), changes, step.Topic)
	for _, answer := range answers {
		err = errors.Join(err, answer.Err)
	}
	return nil, err
}

func (d driver) deleteRecords(step Step) (any, error) {
	offsets := make(kadm.Offsets)
	offsets.AddOffset(step.Topic, step.Partition, step.Before, -1)
	answers, err := d.admin.DeleteRecords(context.Background(), offsets)
	if err = errors.Join(err, answers.Error()); err != nil {
		return nil, err
	}
	answer, _ := answers.Lookup(step.Topic, step.Partition)
	return result{"low_watermark": answer.LowWatermark}, nil
}

func (d driver) listOffsets(step Step) (any, error) {
	var found kadm.ListedOffsets
	var err error
	switch name, timestamp := step.at(); name {
	case "earliest":
		found, err = d.admin.ListStartOffsets(context.Background(), step.Topic)
	case "latest":
		found, err = d.admin.ListEndOffsets(context.Background(), step.Topic)
	case "max_timestamp":
		found, err = d.admin.ListMaxTimestampOffsets(context.Background(), step.Topic)
	default:
		found, err = d.admin.ListOffsetsAfterMilli(context.Background(), timestamp, step.Topic)
	}
	offset, _ := found.Lookup(step.Topic, step.Partition)
	return result{"offset": offset.Offset}, errors.Join(err, found.Error())
}

func (d driver) produce(step Step) (any, error) {
	options := []kgo.Opt{
		kgo.RequiredAcks(acknowledgements[step.Acks]),
		kgo.ProducerBatchCompression(codecs[step.Codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(maxRecord),
		kgo.ProducerLinger(20 * time.Millisecond),
	}
	if !step.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	producer := client(options...)
	defer producer.Close()
	records := make([]*kgo.Record, len(step.Records))
	for index, record := range step.Records {
		records[index] = &kgo.Record{
			Topic: step.Topic, Partition: record.Partition, Key: record.Key, Value: record.Value,
		}
		if record.Timestamp != nil {
			records[index].Timestamp = time.UnixMilli(*record.Timestamp)
		}
		for _, header := range record.Headers {
			records[index].Headers = append(records[index].Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
	}
	// Not the client's delivery timeout, which counts from the timestamp of the record.
	deadline, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	// Records wait for a login that fails as long as they may; a question is answered with its error.
	if err := producer.Ping(deadline); err != nil {
		return nil, err
	}
	if err := producer.ProduceSync(deadline, records...).FirstErr(); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(records))
	for index, record := range records {
		offsets[index] = record.Offset
	}
	return result{"offsets": offsets}, nil
}

func (d driver) consume(step Step) (any, error) {
	start := kgo.NewOffset()
	if step.Start.Timestamp != nil {
		start = start.AfterMilli(*step.Start.Timestamp)
	} else {
		start = start.At(*step.Start.Offset)
	}
	places := make(map[int32]kgo.Offset)
	for _, partition := range step.partitionList() {
		places[partition] = start
	}
	consumer := client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{step.Topic: places}),
		kgo.FetchMaxPartitionBytes(maxRecord),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	defer consumer.Close()
	deadline, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	var found []Record
	for len(found) < step.Count {
		fetched := consumer.PollFetches(deadline)
		if err := fetched.Err(); err != nil {
			return nil, err
		}
		fetched.EachRecord(func(record *kgo.Record) {
			timestamp := record.Timestamp.UnixMilli()
			headers := []Header{}
			for _, header := range record.Headers {
				headers = append(headers, Header{header.Key, header.Value})
			}
			found = append(found, Record{record.Partition, record.Offset, &timestamp, record.Key, record.Value, headers})
		})
	}
	return result{"records": found}, nil
}

func (d driver) transact(step Step) (any, error) {
	producer := client(kgo.TransactionalID(step.TransactionalID), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	deadline, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := producer.BeginTransaction(); err != nil {
		return nil, err
	}
	var records []*kgo.Record
	for _, value := range step.Values {
		records = append(records, &kgo.Record{Topic: step.Topic, Value: value})
	}
	if err := producer.ProduceSync(deadline, records...).FirstErr(); err != nil {
		return nil, err
	}
	return nil, producer.EndTransaction(deadline, kgo.TransactionEndTry(step.Commit))
}

func (d driver) copy(step Step) (any, error) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(os.Args[1]),
		kgo.TransactionalID(step.TransactionalID),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumerGroup(step.Group),
		kgo.ConsumeTopics(step.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RequireStableFetchOffsets(),
	)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	deadline, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	for copied := 0; copied < step.Count; {
		fetched := session.PollFetches(deadline)
		if err := fetched.Err(); err != nil {
			return nil, err
		}
		if err := session.Begin(); err != nil {
			return nil, err
		}
		var records []*kgo.Record
		fetched.EachRecord(func(record *kgo.Record) {
			records = append(records, &kgo.Record{Topic: step.Target, Value: record.Value})
		})
		if err := session.ProduceSync(deadline, records...).FirstErr(); err != nil {
			return nil, err
		}
		committed, err := session.End(deadline, kgo.TryCommit)
		if err != nil {
			return nil, err
		}
		if committed {
			copied += len(records)
		}
	}
	return nil, nil
}

func member(step Step, options ...kgo.Opt) *kgo.Client {
	return client(append(options,
		kgo.ConsumerGroup(step.Group),
		kgo.ConsumeTopics(step.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.SessionTimeout(30*time.Second),
	)...)
}

func (d driver) readInGroup(step Step) (any, error) {
	reader := member(step)
	defer reader.Close()
	deadline, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	var values [][]byte
	for len(values) < step.Count {
		fetched := reader.PollFetches(deadline)
		if err := fetched.Err(); err != nil {
			return nil, err
		}
		fetched.EachRecord(func(record *kgo.Record) { values = append(values, record.Value) })
	}
	return result{"values": values}, reader.CommitUncommittedOffsets(deadline)
}

// owned is what a member has, told by its callbacks.
type owned struct {
	mutex      sync.Mutex
	partitions map[int32]bool
}

func (o *owned) note(topic string, has bool) kgo.Opt {
	change := func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		o.mutex.Lock()
		defer o.mutex.Unlock()
		for _, partition := range changed[topic] {
			if has {
				o.partitions[partition] = true
			} else {
				delete(o.partitions, partition)
			}
		}
	}
	if has {
		return kgo.OnPartitionsAssigned(change)
	}
	return kgo.OnPartitionsRevoked(change)
}

func (o *owned) list() []int32 {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	var found []int32
	for partition := range o.partitions {
		found = append(found, partition)
	}
	return found
}

func (d driver) shareInGroup(step Step) (any, error) {
	one, two := owned{partitions: map[int32]bool{}}, owned{partitions: map[int32]bool{}}
	first := member(step, one.note(step.Topic, true), one.note(step.Topic, false))
	defer first.Close()
	second := member(step, two.note(step.Topic, true), two.note(step.Topic, false))
	shares, err := shared(step, one.list, two.list)
	second.Close()
	if err != nil {
		return nil, err
	}
	return result{"shares": shares}, until(func() bool { return len(one.list()) == int(step.partitionCount()) })
}

func codeOf(err error) *int16 {
	var refused *kerr.Error
	if errors.As(err, &refused) {
		return &refused.Code
	}
	return nil
}

func main() {
	d := driver{kadm.NewClient(client())}
	serve(map[string]func(Step) (any, error){
		"use":              d.use,
		"stream":           d.stream,
		"hello":            hello("github.com/twmb/franz-go"),
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
