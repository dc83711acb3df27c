// The Java client as a driver; steps.py says how it is spoken to.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

public final class KafkaClientsDriver {
    private static final int WAIT_S = 100;
    private static final int MAX_RECORD = 8 << 20;
    private static final ObjectMapper JSON = new ObjectMapper();

    private static final int ROUND = 20; // records that a stream has in flight

    private final Admin admin;
    private final Map<String, Object> connection = new HashMap<>(); // what every client is made with
    private KafkaProducer<byte[], byte[]> sender;

    private KafkaClientsDriver(String bootstrap) {
        this.connection.put("bootstrap.servers", bootstrap);
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) throws Exception {
        KafkaClientsDriver driver = new KafkaClientsDriver(arguments[0]);
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(JSON.writeValueAsString(driver.answer(JSON.readTree(line))));
        }
        driver.admin.close();
        if (driver.sender != null) {
            driver.sender.close();
        }
    }

    private Map<String, Object> answer(JsonNode step) {
        Map<String, Object> reply = new HashMap<>();
        try {
            reply.put("ok", run(step));
        } catch (Exception failure) {
            Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
            Errors error = Errors.forException(cause);
            Map<String, Object> said = new HashMap<>();
            said.put("code", error == Errors.UNKNOWN_SERVER_ERROR ? null : error.code());
            said.put("message", cause.toString());
            reply.put("error", said);
        }
        return reply;
    }

    private Object run(JsonNode step) throws Exception {
        String topic = step.path("topic").asText();
        switch (step.get("do").asText()) {
            case "use":
                return use(step.get("bootstrap").asText(), step.get("security"));
            case "stream":
                return stream(topic, Path.of(step.get("until").asText()));
            case "hello":
                return Map.of("version", AppInfoParser.getVersion());
            case "create_topic":
                NewTopic wanted = new NewTopic(topic, step.get("partitions").asInt(), (short) 1);
                return get(admin.createTopics(List.of(wanted.configs(strings(step.get("configs"))))).all());
            case "add_partitions":
                NewPartitions total = NewPartitions.increaseTo(step.get("partitions").asInt());
                return get(admin.createPartitions(Map.of(topic, total)).all());
            case "delete_topic":
                return get(admin.deleteTopics(List.of(topic)).all());
            case "describe_topic":
                var topics = get(admin.describeTopics(List.of(topic)).allTopicNames());
                return Map.of("partitions", topics.get(topic).partitions().size());
            case "describe_cluster":
                return describeCluster();
            case "describe_configs":
                return describeConfigs(topic);
            case "alter_configs":
                return alterConfigs(topic, strings(step.get("configs")));
            case "delete_records":
                TopicPartition trimmed = new TopicPartition(topic, step.get("partition").asInt());
                RecordsToDelete before = RecordsToDelete.beforeOffset(step.get("before").asLong());
                var deleted = admin.deleteRecords(Map.of(trimmed, before)).lowWatermarks().get(trimmed);
                return Map.of("low_watermark", get(deleted).lowWatermark());
            case "list_offsets":
                TopicPartition asked = new TopicPartition(topic, step.get("partition").asInt());
                var found = admin.listOffsets(Map.of(asked, offsetSpec(step.get("at")))).partitionResult(asked);
                return Map.of("offset", get(found).offset());
            case "produce":
                return produce(topic, step);
            case "send":
                return send(topic, step);
            case "consume":
                return consume(topic, step);
            case "transact":
                return transact(topic, step);
            case "copy":
                return copy(step);
            case "read_in_group":
                return readInGroup(topic, step);
            case "share_in_group":
                return shareInGroup(topic, step);
            default:
                throw new IllegalArgumentException("no step " + step.get("do"));
        }
    }

    private Object use(String bootstrap, JsonNode security) {
        connection.clear();
        connection.put("bootstrap.servers", bootstrap);
        connection.put("security.protocol", security.get("protocol").asText());
        if (security.has("ca")) {
            connection.put("ssl.truststore.type", "PEM");
            connection.put("ssl.truststore.location", security.get("ca").asText());
        }
        String mechanism = security.path("mechanism").asText();
        String modules = "org.apache.kafka.common.security.";
        if (mechanism.equals("OAUTHBEARER")) {
            Path token = Path.of(security.get("token").asText());
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", token.toUri().toString());
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.files", token.toString());
            connection.put("sasl.oauthbearer.token.endpoint.url", token.toUri().toString());
            connection.put(
                "sasl.login.callback.handler.class", modules + "oauthbearer.OAuthBearerLoginCallbackHandler");
            connection.put("sasl.jaas.config", modules + "oauthbearer.OAuthBearerLoginModule required;");
        } else if (!mechanism.isEmpty()) {
            String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
            connection.put("sasl.jaas.config", String.format(
                "%s%s required username=\"%s\" password=\"%s\";",
                modules, module, security.get("username").asText(), security.get("password").asText()));
        }
        if (!mechanism.isEmpty()) {
            connection.put("sasl.mechanism", mechanism);
        }
        return null;
    }

    private Object stream(String topic, Path until) throws Exception {
        int sent = 0;
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(connected(
                "acks", "all",
                "max.block.ms", WAIT_S * 1000,
                "key.serializer", ByteArraySerializer.class,
                "value.serializer", ByteArraySerializer.class))) {
            for (; !Files.exists(until); sent += ROUND) {
                List<Future<RecordMetadata>> waiting = new ArrayList<>();
                for (int number = sent; number < sent + ROUND; number++) {
                    byte[] value = Integer.toString(number).getBytes(StandardCharsets.UTF_8);
                    waiting.add(producer.send(new ProducerRecord<>(topic, 0, null, value)));
                }
                for (Future<RecordMetadata> each : waiting) {
                    get(each);
                }
            }
        }
        return Map.of("sent", sent);
    }

    /** The settings of a client: how it connects, and these. */
    private Map<String, Object> connected(Object... own) {
        Map<String, Object> settings = new HashMap<>(connection);
        for (int index = 0; index < own.length; index += 2) {
            settings.put((String) own[index], own[index + 1]);
        }
        return settings;
    }

    private Object describeCluster() throws Exception {
        var found = admin.describeCluster();
        List<Object> brokers = new ArrayList<>();
        for (Node node : get(found.nodes())) {
            brokers.add(Map.of("id", node.id(), "host", node.host(), "port", node.port()));
        }
        return Map.of(
            "cluster_id", get(found.clusterId()), "controller", get(found.controller()).id(), "brokers", brokers);
    }

    private Object describeConfigs(String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<String, String> values = new HashMap<>();
        for (ConfigEntry entry : get(admin.describeConfigs(List.of(resource)).all()).get(resource).entries()) {
            values.put(entry.name(), entry.value());
        }
        return values;
    }

    private Object alterConfigs(String topic, Map<String, String> configs) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        configs.forEach((name, value) ->
            changes.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        return get(admin.incrementalAlterConfigs(Map.of(resource, changes)).all());
    }

    private Object produce(String topic, JsonNode step) throws Exception {
        Map<String, Object> settings = connected(
            "acks", step.get("acks").asText(),
            "compression.type", step.get("codec").asText(),
            "enable.idempotence", step.get("idempotent").asBoolean(),
            "linger.ms", 20,
            "batch.size", 1 << 20,
            "max.request.size", MAX_RECORD,
            "max.block.ms", WAIT_S * 1000,
            "key.serializer", ByteArraySerializer.class,
            "value.serializer", ByteArraySerializer.class);
        List<Long> offsets = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : step.get("records")) {
                Long timestamp = record.get("timestamp").isNull() ? null : record.get("timestamp").asLong();
                ProducerRecord<byte[], byte[]> made = new ProducerRecord<>(
                    topic, record.get("partition").asInt(), timestamp, bytes(record.get("key")), bytes(record.get("value")));
                for (JsonNode header : record.get("headers")) {
                    made.headers().add(header.get(0).asText(), bytes(header.get(1)));
                }
                sent.add(producer.send(made));
            }
            for (Future<RecordMetadata> each : sent) {
                offsets.add(get(each).offset());
            }
        }
        return Map.of("offsets", offsets);
    }

    /** Records of a producer that lives as long as this program: one whose brokers go and come. */
    private Object send(String topic, JsonNode step) throws Exception {
        if (sender == null) {
            sender = new KafkaProducer<>(connected(
                    "acks", "all",
                "max.block.ms", WAIT_S * 1000,
                "key.serializer", ByteArraySerializer.class,
                "value.serializer", ByteArraySerializer.class));
        }
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : step.get("records")) {
            sent.add(sender.send(new ProducerRecord<>(
                topic, record.get("partition").asInt(), null, bytes(record.get("value")))));
        }
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> each : sent) {
            offsets.add(get(each).offset());
        }
        return Map.of("offsets", offsets);
    }

    private Object consume(String topic, JsonNode step) {
        Map<String, Object> settings = connected(
            "enable.auto.commit", false,
            "auto.offset.reset", "none",
            "isolation.level", "read_committed",
            "fetch.max.wait.ms", 100,
            "max.partition.fetch.bytes", MAX_RECORD,
            "key.deserializer", ByteArrayDeserializer.class,
            "value.deserializer", ByteArrayDeserializer.class);
        int count = step.get("count").asInt();
        List<Object> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            Map<TopicPartition, Long> starts = starts(consumer, topic, step);
            consumer.assign(starts.keySet());
            starts.forEach(consumer::seek);
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
            while (found.size() < count) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("only " + found.size() + " of " + count + " records came");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    found.add(seen(record));
                }
            }
        }
        return Map.of("records", found);
    }

    private Object transact(String topic, JsonNode step) {
        try (KafkaProducer<byte[], byte[]> producer = transactional(step)) {
            producer.beginTransaction();
            for (JsonNode value : step.get("values")) {
                producer.send(new ProducerRecord<>(topic, 0, null, bytes(value)));
            }
            if (step.get("commit").asBoolean()) {
                producer.commitTransaction();
            } else {
                producer.flush();
                producer.abortTransaction();
            }
        }
        return null;
    }

    private Object copy(JsonNode step) {
        Map<String, Object> settings = connected(
            "group.id", step.get("group").asText(),
            "enable.auto.commit", false,
            "auto.offset.reset", "earliest",
            "isolation.level", "read_committed",
            "max.poll.records", 20,
            "key.deserializer", ByteArrayDeserializer.class,
            "value.deserializer", ByteArrayDeserializer.class);
        int count = step.get("count").asInt();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
                KafkaProducer<byte[], byte[]> producer = transactional(step)) {
            consumer.subscribe(List.of(step.get("source").asText()));
            for (int copied = 0; copied < count; ) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("only " + copied + " of " + count + " records came");
                }
                var records = consumer.poll(Duration.ofSeconds(1));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    producer.send(new ProducerRecord<>(step.get("target").asText(), 0, null, record.value()));
                }
                producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
                producer.commitTransaction();
                copied += records.count();
            }
        }
        return null;
    }

    private Object readInGroup(String topic, JsonNode step) {
        int count = step.get("count").asInt();
        List<String> values = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        try (KafkaConsumer<byte[], byte[]> member = member(topic, step)) {
            while (values.size() < count) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("only " + values.size() + " of " + count + " records came");
                }
                member.poll(Duration.ofSeconds(1)).forEach(record -> values.add(text(record.value())));
            }
            member.commitSync();
        }
        return Map.of("values", values);
    }

    private Object shareInGroup(String topic, JsonNode step) {
        int partitions = step.get("partitions").asInt();
        List<Integer> shares;
        try (KafkaConsumer<byte[], byte[]> one = member(topic, step)) {
            try (KafkaConsumer<byte[], byte[]> two = member(topic, step)) {
                pollUntil(List.of(one, two), () -> {
                    int first = one.assignment().size();
                    int second = two.assignment().size();
                    return first > 0 && second > 0 && first + second == partitions;
                });
                shares = List.of(one.assignment().size(), two.assignment().size());
            }
            pollUntil(List.of(one), () -> one.assignment().size() == partitions);
        }
        return Map.of("shares", shares);
    }

    private static void pollUntil(List<KafkaConsumer<byte[], byte[]>> members, BooleanSupplier condition) {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the members did not come to terms");
            }
            members.forEach(member -> member.poll(Duration.ofMillis(50)));
        }
    }

    private KafkaConsumer<byte[], byte[]> member(String topic, JsonNode step) {
        KafkaConsumer<byte[], byte[]> member = new KafkaConsumer<>(connected(
            "group.id", step.get("group").asText(),
            "enable.auto.commit", false,
            "auto.offset.reset", "earliest",
            "heartbeat.interval.ms", 200,
            "session.timeout.ms", 30_000,
            "key.deserializer", ByteArrayDeserializer.class,
            "value.deserializer", ByteArrayDeserializer.class));
        member.subscribe(List.of(topic));
        return member;
    }

    private KafkaProducer<byte[], byte[]> transactional(JsonNode step) {
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(connected(
            "transactional.id", step.get("transactional_id").asText(),
            "max.block.ms", WAIT_S * 1000,
            "key.serializer", ByteArraySerializer.class,
            "value.serializer", ByteArraySerializer.class));
        producer.initTransactions();
        return producer;
    }

    private static Map<TopicPartition, Long> starts(KafkaConsumer<?, ?> consumer, String topic, JsonNode step) {
        Map<TopicPartition, Long> starts = new HashMap<>();
        JsonNode start = step.get("start");
        String kind = start.has("timestamp") ? "timestamp" : "offset";
        for (JsonNode partition : step.get("partitions")) {
            starts.put(new TopicPartition(topic, partition.asInt()), start.get(kind).asLong());
        }
        if (kind.equals("timestamp")) {
            var found = consumer.offsetsForTimes(starts);
            starts.replaceAll((place, timestamp) -> found.get(place).offset());
        }
        return starts;
    }

    private static Map<String, Object> seen(ConsumerRecord<byte[], byte[]> record) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<String> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(text(header.value()));
            headers.add(pair);
        }
        Map<String, Object> seen = new HashMap<>();
        seen.put("partition", record.partition());
        seen.put("offset", record.offset());
        seen.put("timestamp", record.timestamp());
        seen.put("key", text(record.key()));
        seen.put("value", text(record.value()));
        seen.put("headers", headers);
        return seen;
    }

    private static OffsetSpec offsetSpec(JsonNode at) {
        switch (at.asText()) {
            case "earliest":
                return OffsetSpec.earliest();
            case "latest":
                return OffsetSpec.latest();
            case "max_timestamp":
                return OffsetSpec.maxTimestamp();
            default:
                return OffsetSpec.forTimestamp(at.asLong());
        }
    }

    private static <T> T get(Future<T> future) throws Exception {
        return future.get(WAIT_S, TimeUnit.SECONDS);
    }

    private static Map<String, String> strings(JsonNode object) {
        Map<String, String> found = new HashMap<>();
        object.properties().forEach(entry -> found.put(entry.getKey(), entry.getValue().asText()));
        return found;
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String text(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }
}
