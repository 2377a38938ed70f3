// The verbs of driver.py with KafkaJS.
'use strict'

const readline = require('readline')
const { Kafka, CompressionTypes, CompressionCodecs, Partitioners, logLevel } = require('kafkajs')
const lz4 = require('lz4js')
const snappy = require('kafkajs-snappy')
const { ZstdCodec } = require('zstd-codec')
const Batch = require('kafkajs/src/consumer/batch')
const Cluster = require('kafkajs/src/cluster')
const socketFactory = require('kafkajs/src/network/socketFactory')
const { createLogger } = require('kafkajs/src/loggers')

const EARLIEST = -2
const LATEST = -1
const NO_CODE = -1001

CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => {
    // lz4js says that blocks depend on each other, which Kafka does not take; with a single block it is not even so.
    const frame = Buffer.from(lz4.compress(encoder.buffer))
    frame.set([0x60, 0x70, 0x73], 4)
    return frame
  },
  decompress: async buffer => Buffer.from(lz4.decompress(buffer)),
})

const codecs = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

const brokers = process.argv[2].split(',')
const kafka = new Kafka({ brokers, logLevel: logLevel.NOTHING, retry: { retries: 3, initialRetryTime: 50 } })
const admin = kafka.admin()
const say = answer => process.stdout.write(JSON.stringify(answer) + '\n')
const bytes = text => (text === null ? null : Buffer.from(text, 'base64'))
const text = value => (value === null || value === undefined ? null : Buffer.from(value).toString('base64'))
const inside = error => error.errors?.[0] ?? error.partitions?.[0]?.error ?? error.cause ?? error.originalError
const code = error => (typeof error.code === 'number' ? error.code : inside(error) ? code(inside(error)) : NO_CODE)

const describe = async topics => (await admin.fetchTopicMetadata(topics && { topics })).topics

const ops = {
  create_topic: async ({ topic, partitions, configs }) => {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    const made = await admin.createTopics({ topics: [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }] })
    // KafkaJS tells of a topic that is there already by false, and not which error it was.
    if (!made) throw Object.assign(new Error(`${topic} was not created`), { code: 36 })
  },
  delete_topic: async ({ topic }) => admin.deleteTopics({ topics: [topic] }),
  create_partitions: async ({ topic, count }) => admin.createPartitions({ topicPartitions: [{ topic, count }] }),
  list_topics: async () => Object.fromEntries((await describe()).map(({ name, partitions }) => [name, partitions.length])),
  describe_topic: async ({ topic }) =>
    (await describe([topic]))[0].partitions.map(row => [row.partitionId, row.leader, row.replicas, row.isr]),
  describe_configs: async ({ type, name }) => {
    const { resources } = await admin.describeConfigs({ resources: [{ type, name }], includeSynonyms: false })
    return Object.fromEntries(resources[0].configEntries.map(row => [row.configName, row.configValue]))
  },
  // AlterConfigs, the old way: what is not named falls back to its default.
  alter_config: async ({ type, name, key, value }) => {
    const configEntries = value === null ? [] : [{ name: key, value }]
    await admin.alterConfigs({ validateOnly: false, resources: [{ type, name, configEntries }] })
  },
  delete_records: async ({ topic, partition, offset }) => {
    // It looks for the leader in what it happens to know, and knows the topics that it was asked about.
    await admin.fetchTopicOffsets(topic)
    await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(offset) }] })
    return -1
  },
  list_offset: async ({ topic, partition, at }) => {
    if (at === EARLIEST || at === LATEST) {
      const row = (await admin.fetchTopicOffsets(topic)).find(found => found.partition === partition)
      return Number(at === EARLIEST ? row.low : row.high)
    }
    const rows = await admin.fetchTopicOffsetsByTimestamp(topic, at)
    return Number(rows.find(found => found.partition === partition).offset)
  },
  produce: async ({ topic, messages, acks, codec, idempotent }) => {
    const producer = kafka.producer({ idempotent, createPartitioner: Partitioners.DefaultPartitioner, allowAutoTopicCreation: true })
    await producer.connect()
    const wanted = messages.map(message => ({
      key: bytes(message.key),
      value: bytes(message.value),
      headers: Object.fromEntries(message.headers.map(({ key, value }) => [key, bytes(value)])),
      ...(message.timestamp === null ? {} : { timestamp: String(message.timestamp) }),
      ...(message.partition === null ? {} : { partition: message.partition }),
    }))
    try {
      // One call is one batch for each partition, and the answer is its base offset.
      const rows = await producer.send({ topic, messages: wanted, acks, compression: codecs[codec] })
      return place(topic, wanted, rows, acks)
    } catch (error) {
      return messages.map(() => ({ partition: -1, offset: -1, error: code(error) }))
    } finally {
      await producer.disconnect()
    }
  },
  read_as_group: async ({ topic, group, count }) => {
    const consumer = kafka.consumer({ groupId: group })
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    const places = []
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      const eachMessage = async ({ partition, message }) => {
        places.push([partition, Number(message.offset)])
        if (places.length === count) resolve()
      }
      consumer.run({ eachMessage }).catch(reject)
    })
    // It commits what it has handed over, and leaves.
    await consumer.disconnect()
    return places
  },
  // What group_member.py does, until there are no more requests. It commits what it has handed over, batch by batch.
  member: async ({ topic, group, assignor, session_ms: sessionTimeout, max_poll_ms: rebalanceTimeout }) => {
    if (assignor !== 'roundrobin') throw new Error(`KafkaJS has no assignor ${assignor}`)
    // Heartbeats wait for fetches. A dead coordinator is asked until the retries are used up; then it joins as another member.
    const timings = { sessionTimeout, rebalanceTimeout, heartbeatInterval: 300, maxWaitTimeInMs: 300 }
    const consumer = kafka.consumer({ groupId: group, ...timings, retry: { retries: 3, initialRetryTime: 100 } })
    let assigned = []
    const lose = () => {
      say({ revoked: assigned })
      assigned = []
    }
    await new Promise((resolve, reject) => {
      process.stdin.once('end', resolve)
      consumer.on(consumer.events.REBALANCING, lose)
      consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
        lose()
        assigned = payload.memberAssignment[topic] ?? []
        say({ assigned })
      })
      consumer.on(consumer.events.CRASH, ({ payload }) => {
        lose()
        console.error(payload.error)
        if (!payload.restart) reject(payload.error)
      })
      const eachMessage = async ({ partition, message }) => say({ record: [partition, Number(message.offset)] })
      consumer
        .connect()
        .then(() => consumer.subscribe({ topic, fromBeginning: true }))
        .then(() => consumer.run({ eachMessage }))
        .catch(reject)
    })
    await consumer.disconnect()
  },
  // KafkaJS has no consumer without a group, so its own cluster is asked for batches, as its consumer does.
  tail: async ({ topic, partition, at, count, max_wait_ms: maxWaitTime }) => tail(topic, partition, at, count, maxWaitTime),
}

const place = (topic, messages, rows, acks) => {
  if (acks === 0) return messages.map(({ partition }) => ({ partition: partition ?? -1, offset: -1 }))
  const next = new Map(rows.map(row => [row.partition, Number(row.baseOffset)]))
  const pick = Partitioners.DefaultPartitioner()
  const metadata = [...next.keys()].map(partitionId => ({ partitionId, leader: 0 }))
  return messages.map(message => {
    const partition = message.partition ?? (next.size === 1 ? rows[0].partition : pick({ topic, partitionMetadata: metadata, message }))
    const offset = next.get(partition)
    next.set(partition, offset + 1)
    return { partition, offset }
  })
}

const newCluster = requestTimeout =>
  new Cluster({
    logger: createLogger({ level: logLevel.NOTHING, logCreator: () => () => {} }),
    socketFactory: socketFactory(),
    brokers,
    offsets: new Map(),
    connectionTimeout: 5000,
    requestTimeout,
    enforceRequestTimeout: true,
    isolationLevel: 0,
  })

const tail = async (topic, partition, at, count, maxWaitTime) => {
  const cluster = newCluster(maxWaitTime + 30000)
  await cluster.connect()
  try {
    await cluster.addTargetTopic(topic)
    const { leader } = cluster.findTopicPartitionMetadata(topic).find(row => row.partitionId === partition)
    const broker = await cluster.findBroker({ nodeId: leader })
    let offset = String(at < 0 ? await ops.list_offset({ topic, partition, at }) : at)
    for (let left = count; left > 0; ) {
      const partitions = [{ partition, fetchOffset: offset, maxBytes: 1048576, currentLeaderEpoch: -1 }]
      const answer = await broker.fetch({ maxWaitTime, minBytes: 1, maxBytes: 10485760, isolationLevel: 0, topics: [{ topic, partitions }] })
      const batch = new Batch(topic, offset, answer.responses[0].partitions[0])
      for (const message of batch.messages.slice(0, left)) {
        say({ event: record(message) })
        left -= 1
      }
      offset = String(BigInt(batch.lastOffset()) + 1n)
    }
  } finally {
    await cluster.disconnect()
  }
}

const record = ({ offset, timestamp, key, value, headers }) => ({
  offset: Number(offset),
  timestamp: Number(timestamp),
  key: text(key),
  value: text(value),
  headers: Object.entries(headers ?? {}).map(([name, header]) => ({ key: name, value: text(header) })),
})

const main = async () => {
  const zstd = await new Promise(resolve => ZstdCodec.run(loaded => resolve(new loaded.Streaming())))
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async encoder => Buffer.from(zstd.compress(encoder.buffer)),
    decompress: async buffer => Buffer.from(zstd.decompress(buffer)),
  })
  await admin.connect()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const request = JSON.parse(line)
    try {
      say({ ok: (await ops[request.op](request)) ?? null })
    } catch (error) {
      say({ error: code(error), message: String(error) })
    }
  }
  await admin.disconnect()
}

main()
