// KafkaJS as a driver; steps.py says how it is spoken to.
'use strict'

const fs = require('node:fs')
const readline = require('node:readline')
const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require('kafkajs')
const Cluster = require('kafkajs/src/cluster')
const Batch = require('kafkajs/src/consumer/batch')
const { createErrorFromCode } = require('kafkajs/src/protocol/error')
const { createLogger } = require('kafkajs/src/loggers')
const snappy = require('snappyjs')
const lz4 = require('lz4-napi')
const zstd = require('@bokuweb/zstd-wasm')

const WAIT_MS = 100000
const READ_COMMITTED = 1
const [bootstrap] = process.argv.slice(2)

process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'
const ROUND = 20 // records that a stream has in flight
let connection = { brokers: [bootstrap], clientId: 'kafkajs', connectionTimeout: 30000 }
let kafka = connected()
const admin = kafka.admin()

function connected() {
  return new Kafka({ ...connection, logLevel: logLevel.NOTHING, retry: { retries: 3 } })
}

// KafkaJS brings gzip; the others are plugged in the way its documentation says.
CompressionCodecs[CompressionTypes.Snappy] = () => ({
  compress: async encoder => Buffer.from(snappy.compress(encoder.buffer)),
  decompress: async buffer => unframedSnappy(buffer),
})
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: buffer => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async buffer => Buffer.from(zstd.decompress(buffer)),
})

const SNAPPY_FRAMING = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0])
const SNAPPY_FRAMING_BYTES = 16

// Java clients cut snappy into blocks behind a header, librdkafka writes one raw block.
function unframedSnappy(buffer) {
  if (!buffer.subarray(0, SNAPPY_FRAMING.length).equals(SNAPPY_FRAMING)) {
    return Buffer.from(snappy.uncompress(buffer))
  }
  const blocks = []
  for (let position = SNAPPY_FRAMING_BYTES; position < buffer.length; ) {
    const size = buffer.readInt32BE(position)
    blocks.push(Buffer.from(snappy.uncompress(buffer.subarray(position + 4, position + 4 + size))))
    position += 4 + size
  }
  return Buffer.concat(blocks)
}

const decoded = text => (text === null ? null : Buffer.from(text, 'base64'))
const encoded = data => (data === null || data === undefined ? null : Buffer.from(data).toString('base64'))

const steps = {
  async use({ bootstrap, security }) {
    const { mechanism, username, password, ca, token } = security
    connection = { ...connection, brokers: [bootstrap], ssl: undefined, sasl: undefined }
    if (ca) connection.ssl = { ca: [fs.readFileSync(ca)] }
    if (token) {
      const oauthBearerProvider = async () => ({ value: fs.readFileSync(token, 'utf8') })
      connection.sasl = { mechanism, oauthBearerProvider }
    } else if (mechanism) {
      connection.sasl = { mechanism, username, password }
    }
    kafka = connected()
  },

  async stream({ topic, until }) {
    const producer = kafka.producer({ allowAutoTopicCreation: false, maxInFlightRequests: 1 })
    await producer.connect()
    let sent = 0
    try {
      for (; !fs.existsSync(until); sent += ROUND) {
        const messages = Array.from({ length: ROUND }, (_, index) => ({ partition: 0, value: String(sent + index) }))
        await producer.send({ topic, acks: -1, messages })
      }
    } finally {
      await producer.disconnect()
    }
    return { sent }
  },

  async hello() {
    return { version: require('kafkajs/package.json').version }
  },

  async create_topic({ topic, partitions, configs }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    const created = await admin.createTopics({
      waitForLeaders: false, // the test waits, and for longer
      topics: [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }],
    })
    // It answers false, without an error, where the topic exists.
    if (!created) throw createErrorFromCode(36)
  },

  async add_partitions({ topic, partitions }) {
    await admin.createPartitions({ topicPartitions: [{ topic, count: partitions }] })
  },

  async delete_topic({ topic }) {
    await admin.deleteTopics({ topics: [topic] })
  },

  async describe_topic({ topic }) {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    return { partitions: topics[0].partitions.length }
  },

  async describe_cluster() {
    const { brokers, controller, clusterId } = await admin.describeCluster()
    return {
      cluster_id: clusterId,
      controller,
      brokers: brokers.map(({ nodeId, host, port }) => ({ id: nodeId, host, port })),
    }
  },

  async describe_configs({ topic }) {
    const { resources } = await admin.describeConfigs({ resources: [{ type: 2, name: topic }], includeSynonyms: false })
    return Object.fromEntries(resources[0].configEntries.map(entry => [entry.configName, entry.configValue]))
  },

  async alter_configs({ topic, configs }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    await admin.alterConfigs({ validateOnly: false, resources: [{ type: 2, name: topic, configEntries }] })
  },

  async delete_records({ topic, partition, before }) {
    // It looks for the leader in the metadata that it has; asking for offsets brings that of the topic.
    await offsetAt(topic, partition, 'earliest')
    await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
    return { low_watermark: await offsetAt(topic, partition, 'earliest') }
  },

  async list_offsets({ topic, partition, at }) {
    return { offset: await offsetAt(topic, partition, at) }
  },

  async produce({ topic, acks, codec, idempotent, records }) {
    const producer = kafka.producer({ idempotent, allowAutoTopicCreation: false, maxInFlightRequests: 1 })
    await producer.connect()
    try {
      const answers = await producer.send({
        topic,
        acks: acks === 'all' ? -1 : Number(acks),
        compression: { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 }[codec],
        messages: records.map(record => ({
          partition: record.partition,
          key: decoded(record.key),
          value: decoded(record.value),
          headers: groupedHeaders(record.headers),
          timestamp: record.timestamp === null ? undefined : String(record.timestamp),
        })),
      })
      return { offsets: offsetsOf(records, answers) }
    } finally {
      await producer.disconnect()
    }
  },

  async transact({ topic, transactional_id, values, commit }) {
    const producer = await transactional(transactional_id)
    try {
      const transaction = await producer.transaction()
      await transaction.send({ topic, messages: values.map(value => ({ partition: 0, value: decoded(value) })) })
      await (commit ? transaction.commit() : transaction.abort())
    } finally {
      await producer.disconnect()
    }
  },

  async copy({ source, target, group, transactional_id, count }) {
    const producer = await transactional(transactional_id)
    const consumer = kafka.consumer({ groupId: group, readUncommitted: false, maxWaitTimeInMs: 100 })
    await consumer.connect()
    try {
      await consumer.subscribe({ topics: [source], fromBeginning: true })
      let copied = 0
      await new Promise((resolve, reject) => {
        setTimeout(() => reject(new Error(`only ${copied} of ${count} records came`)), WAIT_MS).unref()
        const eachBatch = async ({ batch, resolveOffset }) => {
          try {
            const transaction = await producer.transaction()
            const messages = batch.messages.map(({ value }) => ({ partition: 0, value }))
            await transaction.send({ topic: target, messages })
            const offset = String(Number(batch.lastOffset()) + 1)
            const partitions = [{ partition: batch.partition, offset }]
            await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic: source, partitions }] })
            await transaction.commit()
            resolveOffset(batch.lastOffset())
            copied += messages.length
            if (copied >= count) resolve()
          } catch (error) {
            reject(error)
          }
        }
        consumer.run({ autoCommit: false, eachBatch }).catch(reject)
      })
    } finally {
      await consumer.disconnect()
      await producer.disconnect()
    }
  },

  async read_in_group({ topic, group, count }) {
    const member = await groupMember(topic, group)
    try {
      const values = []
      const next = new Map()
      await new Promise((resolve, reject) => {
        setTimeout(() => reject(new Error(`only ${values.length} of ${count} records came`)), WAIT_MS).unref()
        const eachMessage = async ({ partition, message }) => {
          values.push(encoded(message.value))
          next.set(partition, Number(message.offset) + 1)
          if (values.length === count) resolve()
        }
        member.run({ autoCommit: false, eachMessage }).catch(reject)
      })
      await member.commitOffsets([...next].map(([partition, offset]) => ({ topic, partition, offset: String(offset) })))
      return { values }
    } finally {
      await member.disconnect()
    }
  },

  async share_in_group({ topic, group, partitions }) {
    const owned = [[], []]
    const members = []
    const until = async condition => {
      for (const deadline = Date.now() + WAIT_MS; !condition(); ) {
        if (Date.now() > deadline) throw new Error('the members did not come to terms')
        await new Promise(resolve => setTimeout(resolve, 20))
      }
    }
    try {
      for (const number of [0, 1]) {
        const member = await groupMember(topic, group)
        members.push(member)
        member.on(member.events.GROUP_JOIN, ({ payload }) => (owned[number] = payload.memberAssignment[topic] || []))
        await member.run({ eachMessage: async () => {} })
      }
      await until(() => owned.every(each => each.length > 0) && owned.flat().length === partitions)
      const shares = owned.map(each => each.length)
      await members.pop().disconnect()
      await until(() => owned[0].length === partitions)
      return { shares }
    } finally {
      for (const member of members) await member.disconnect()
    }
  },

  // A consumer of KafkaJS is always a member of a group, so partitions are read with its own Fetch beneath it.
  async consume({ topic, partitions, start, count }) {
    const cluster = new Cluster({
      ...connection,
      logger: createLogger({ level: logLevel.NOTHING, logCreator: () => () => {} }),
      socketFactory: require('kafkajs/src/network/socketFactory')(),
      metadataMaxAge: 300000,
      allowAutoTopicCreation: false,
      isolationLevel: READ_COMMITTED,
    })
    await cluster.connect()
    try {
      await cluster.addTargetTopic(topic)
      const next = new Map()
      for (const partition of partitions) {
        next.set(partition, 'timestamp' in start ? await offsetAt(topic, partition, start.timestamp) : start.offset)
      }
      return { records: await fetchAll(cluster, topic, next, count) }
    } finally {
      await cluster.disconnect()
    }
  },
}

async function groupMember(topic, groupId) {
  const pace = { heartbeatInterval: 200, sessionTimeout: 30000, maxWaitTimeInMs: 100 }
  const member = kafka.consumer({ groupId, ...pace })
  await member.connect()
  await member.subscribe({ topics: [topic], fromBeginning: true })
  return member
}

async function transactional(transactionalId) {
  const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  return producer
}

async function fetchAll(cluster, topic, next, count) {
  const leaders = cluster.findLeaderForPartitions(topic, [...next.keys()])
  const found = []
  const deadline = Date.now() + WAIT_MS
  while (found.length < count) {
    if (Date.now() > deadline) throw new Error(`only ${found.length} of ${count} records came`)
    for (const [nodeId, partitions] of Object.entries(leaders)) {
      const broker = await cluster.findBroker({ nodeId })
      const wanted = partitions.map(partition => ({
        partition,
        fetchOffset: String(next.get(partition)),
        maxBytes: 8 << 20,
      }))
      const { responses } = await broker.fetch({
        isolationLevel: READ_COMMITTED,
        maxWaitTime: 100,
        minBytes: 1,
        maxBytes: 64 << 20,
        topics: [{ topic, partitions: wanted }],
      })
      for (const answer of responses.flatMap(response => response.partitions)) {
        const { partition, errorCode, messages } = answer
        if (errorCode !== 0) throw createErrorFromCode(errorCode)
        // As its consumer does: without what came before the offset asked for, without what was aborted, without markers.
        const visible = new Batch(topic, String(next.get(partition)), answer).messages
        if (messages.length > 0) next.set(partition, Number(messages[messages.length - 1].offset) + 1)
        for (const message of visible) {
          const offset = Number(message.offset)
          found.push({
            partition,
            offset,
            timestamp: Number(message.timestamp),
            key: encoded(message.key),
            value: encoded(message.value),
            headers: flatHeaders(message.headers),
          })
        }
      }
    }
  }
  return found
}

async function offsetAt(topic, partition, at) {
  if (typeof at === 'number') {
    const found = await admin.fetchTopicOffsetsByTimestamp(topic, at)
    return Number(found.find(each => each.partition === partition).offset)
  }
  const found = (await admin.fetchTopicOffsets(topic)).find(each => each.partition === partition)
  return Number(at === 'earliest' ? found.low : found.high)
}

// A message's headers are an object: the values of one name are an array.
function groupedHeaders(pairs) {
  const headers = {}
  for (const [name, value] of pairs) {
    headers[name] = name in headers ? [headers[name], decoded(value)].flat() : decoded(value)
  }
  return headers
}

function flatHeaders(headers) {
  return Object.entries(headers || {}).flatMap(([name, values]) => [values].flat().map(value => [name, encoded(value)]))
}

// A send is answered with one base offset a partition; the records of a partition are one batch.
function offsetsOf(records, answers) {
  const next = new Map((answers || []).map(each => [each.partition, Number(each.baseOffset)]))
  return records.map(({ partition }) => {
    if (!next.has(partition)) return null
    const offset = next.get(partition)
    next.set(partition, offset + 1)
    return offset
  })
}

function codeOf(error) {
  for (let each = error; each; each = each.cause || (each.errors && each.errors[0])) {
    if (typeof each.code === 'number') return each.code
  }
  return null
}

async function main() {
  await zstd.init()
  await admin.connect()
  for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    const step = JSON.parse(line)
    let reply
    try {
      reply = { ok: (await steps[step.do](step)) ?? null }
    } catch (error) {
      reply = { error: { code: codeOf(error), message: `${error.name}: ${error.message}` } }
    }
    process.stdout.write(JSON.stringify(reply) + '\n')
  }
  await admin.disconnect()
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
