// The hosted service's own SDK (@ibm-cloud/cloudant): every operation of it
// that concerns servers, databases, documents, attachments, changes and views. The
// SDK compresses every request body with gzip and reads its settings from the
// environment, as a program that moves over from the hosted service would.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createHash, randomBytes } from 'node:crypto'
import cloudant from '@ibm-cloud/cloudant'
import { collect, createDatabase, databaseName, dropAfter, origin, password, username, within } from './target.mjs'

const { ChangesFollower, CloudantV1 } = cloudant

Object.assign(process.env, {
  CLOUDANT_URL: origin,
  CLOUDANT_AUTH_TYPE: 'BASIC',
  CLOUDANT_USERNAME: username,
  CLOUDANT_PASSWORD: password
})

const client = CloudantV1.newInstance({})

/** Name of a fresh database with documents c00, c01, ... in it. */
async function filled (t, count, query) {
  const db = await createDatabase(t, 'sdk', query)
  const docs = Array.from({ length: count }, (_, i) => ({ _id: `c${String(i).padStart(2, '0')}`, i, even: i % 2 === 0 }))
  const { result, status } = await client.postBulkDocs({ db, bulkDocs: { docs } })
  assert.equal(status, 201)
  assert.deepEqual(result.map((r) => r.ok), docs.map(() => true))
  return { db, revs: result.map((r) => r.rev) }
}

const fails = (code, error) => (e) => {
  assert.equal(e.status ?? e.code, code, e.message)
  if (error) assert.equal((typeof e.result === 'string' ? JSON.parse(e.result) : e.result).error, error)
  return true
}

/** Status alone, for HEAD answers, which have no body. */
const missing = fails(404)

describe('SDK server operations', { concurrency: true, timeout: 60_000 }, () => {
  test('the client compresses request bodies', () => {
    assert.equal(client.requestWrapperInstance.compressRequestData, true)
  })

  test('getServerInformation, getUpInformation, headUpInformation, getUuids, getMembershipInformation, getActiveTasks', async () => {
    const info = (await client.getServerInformation()).result
    assert.equal(info.couchdb, 'Welcome')
    assert.equal(info.version, '3.5.2')
    assert.ok(Array.isArray(info.features) && info.vendor.name && info.vendor.version)
    assert.equal((await client.getUpInformation()).result.status, 'ok')
    assert.equal((await client.headUpInformation()).status, 200)
    assert.equal((await client.getUuids({ count: 5 })).result.uuids.length, 5)
    const members = (await client.getMembershipInformation()).result
    assert.equal(members.allNodes.length, 1)
    assert.deepEqual(members.clusterNodes, members.allNodes)
    assert.ok(Array.isArray((await client.getActiveTasks()).result))
  })

  test('putDatabase, headDatabase, getDatabaseInformation, postDbsInfo, getAllDbs, getDbUpdates, deleteDatabase', async (t) => {
    const db = dropAfter(t, databaseName('sdk'))
    const created = await client.putDatabase({ db, q: 2 })
    assert.equal(created.status, 201)
    assert.equal(created.result.ok, true)
    await assert.rejects(client.putDatabase({ db }), fails(412, 'file_exists'))
    assert.equal((await client.headDatabase({ db })).status, 200)
    const info = (await client.getDatabaseInformation({ db })).result
    assert.equal(info.dbName, db)
    assert.equal(info.docCount, 0)
    assert.equal(info.docDelCount, 0)
    assert.equal(info.cluster.q, 2)
    assert.ok(info.updateSeq)
    assert.equal(info.compactRunning, false)
    for (const size of ['active', 'external', 'file']) assert.equal(typeof info.sizes[size], 'number')

    const infos = (await client.postDbsInfo({ keys: [db, 'no-such-database'] })).result
    assert.equal(infos[0].key, db)
    assert.equal(infos[0].info.dbName, db)
    assert.deepEqual({ key: infos[1].key, error: infos[1].error }, { key: 'no-such-database', error: 'not_found' })

    assert.ok((await client.getAllDbs()).result.includes(db))
    const key = JSON.stringify(db) // the SDK passes keys of a query string on as they are
    assert.deepEqual((await client.getAllDbs({ startKey: key, endKey: key, limit: 1 })).result, [db])
    const updates = (await client.getDbUpdates({ since: '0', feed: 'normal' })).result
    assert.ok(updates.results.some((u) => u.dbName === db && u.type === 'created'))

    assert.equal((await client.deleteDatabase({ db })).result.ok, true)
    await assert.rejects(client.headDatabase({ db }), missing)
    await assert.rejects(client.deleteDatabase({ db }), fails(404, 'not_found'))
    const later = (await client.getDbUpdates({ since: updates.lastSeq })).result
    assert.ok(later.results.some((u) => u.dbName === db && u.type === 'deleted'))
  })

  test('getShardsInformation, getDocumentShardsInfo', async (t) => {
    const { db } = await filled(t, 1, '?q=4')
    const { shards } = (await client.getShardsInformation({ db })).result
    assert.equal(Object.keys(shards).length, 4)
    const node = (await client.getMembershipInformation()).result.allNodes[0]
    for (const [range, nodes] of Object.entries(shards)) {
      assert.match(range, /^[0-9a-f]{8}-[0-9a-f]{8}$/)
      assert.deepEqual(nodes, [node])
    }
    const { range, nodes } = (await client.getDocumentShardsInfo({ db, docId: 'c00' })).result
    assert.ok(range in shards)
    assert.deepEqual(nodes, [node])
  })

  test('errors carry error, reason and a trace', async () => {
    await assert.rejects(client.getDocument({ db: 'no-such-database', docId: 'x' }), (e) => {
      assert.equal(e.status ?? e.code, 404)
      assert.match(e.message, /not_found/)
      assert.ok(e.headers.get ? e.headers.get('x-couch-request-id') : e.headers['x-couch-request-id'])
      return true
    })
    const stranger = CloudantV1.newInstance({ authenticator: new cloudant.BasicAuthenticator({ username, password: password + 'x' }) })
    await assert.rejects(stranger.getAllDbs(), fails(401, 'unauthorized'))
  })
})

describe('SDK document operations', { concurrency: true, timeout: 60_000 }, () => {
  test('postDocument, putDocument, headDocument, getDocument, getDocumentAsStream, deleteDocument', async (t) => {
    const db = await createDatabase(t, 'sdk')
    const posted = await client.postDocument({ db, document: { kind: 'posted', text: 'ü'.repeat(5000) } })
    assert.equal(posted.status, 201)
    assert.equal((await client.getDocument({ db, docId: posted.result.id })).result.text, 'ü'.repeat(5000))
    const docId = 'a/b+c d&ü'
    const first = (await client.putDocument({ db, docId, document: { v: 1 } })).result
    const second = (await client.putDocument({ db, docId, document: { v: 2 }, rev: first.rev })).result
    const third = (await client.putDocument({ db, docId, document: { v: 3 }, ifMatch: second.rev })).result
    await assert.rejects(client.putDocument({ db, docId, document: { v: 9 } }), fails(409, 'conflict'))
    assert.equal((await client.putDocument({ db, docId: 'batched', document: {}, batch: 'ok' })).status, 202)

    const doc = (await client.getDocument({ db, docId, revs: true, revsInfo: true, conflicts: true, localSeq: true })).result
    assert.equal(doc._id, docId)
    assert.equal(doc._rev, third.rev)
    assert.equal(doc.v, 3)
    assert.deepEqual(doc._revisions.ids, [third, second, first].map((r) => r.rev.slice(2)))
    assert.equal(doc._revs_info.length, 3)
    assert.ok(doc._local_seq !== undefined)
    assert.equal((await client.getDocument({ db, docId, rev: first.rev })).result.v, 1)
    assert.equal((await client.getDocument({ db, docId, meta: true })).result._revs_info.length, 3)
    const streamed = JSON.parse(await collect((await client.getDocumentAsStream({ db, docId })).result))
    assert.deepEqual(streamed, { _id: docId, _rev: third.rev, v: 3 })

    const head = await client.headDocument({ db, docId })
    const etag = head.headers.get ? head.headers.get('etag') : head.headers.etag
    assert.equal(etag, `"${third.rev}"`)
    await assert.rejects(client.headDocument({ db, docId, ifNoneMatch: etag }), fails(304))
    const gone = (await client.deleteDocument({ db, docId, rev: third.rev })).result
    assert.match(gone.rev, /^4-/)
    await assert.rejects(client.getDocument({ db, docId }), fails(404, 'not_found'))
    await assert.rejects(client.headDocument({ db, docId }), missing)
    const foreign = { _rev: '3-abc', _revisions: { start: 3, ids: ['abc', 'abb', 'aba'] }, v: 'foreign' }
    assert.equal((await client.putDocument({ db, docId: 'foreign', document: foreign, newEdits: false })).result.rev, '3-abc')
  })

  test('getDocumentAsRelated, getDocumentAsMixed', async (t) => {
    const db = await createDatabase(t, 'sdk')
    const data = Buffer.from('attached bytes').toString('base64')
    await client.putDocument({ db, docId: 'doc', document: { v: 1, _attachments: { 'a.bin': { contentType: 'application/x-a', data } } } })
    const related = await client.getDocumentAsRelated({ db, docId: 'doc', attachments: true })
    const body = (await collect(related.result)).toString()
    assert.match(body, /"follows":true/)
    assert.match(body, /\r\n\r\nattached bytes\r\n--/)
    // without open_revs there is one revision to send: a document, in either form
    const mixed = (await collect((await client.getDocumentAsMixed({ db, docId: 'doc', attachments: true })).result)).toString()
    assert.match(mixed, /"_id":"doc"/)
  })

  test('postBulkDocs, postBulkGet in four forms, postRevsDiff', async (t) => {
    const { db, revs } = await filled(t, 6)
    const mixed = (await client.postBulkDocs({ db, bulkDocs: { docs: [{ _id: 'c00' }, { _id: 'c01', _rev: revs[1], _deleted: true }] } })).result
    assert.equal(mixed[0].error, 'conflict')
    assert.equal(mixed[1].ok, true)
    const foreign = await client.postBulkDocs({ db, bulkDocs: { newEdits: false, docs: [{ _id: 'f', _rev: '2-bb', _revisions: { start: 2, ids: ['bb', 'aa'] } }] } })
    assert.deepEqual(foreign.result, [])
    const raw = Buffer.from(JSON.stringify({ docs: [{ _id: 'from-a-buffer' }] }))
    assert.equal((await client.postBulkDocs({ db, bulkDocs: raw })).result[0].id, 'from-a-buffer')

    const docs = [{ id: 'c02' }, { id: 'c03', rev: revs[3] }, { id: 'nobody' }]
    const json = (await client.postBulkGet({ db, docs, revs: true })).result.results
    assert.deepEqual(json.map((r) => r.id), ['c02', 'c03', 'nobody'])
    assert.equal(json[0].docs[0].ok.i, 2)
    assert.equal(json[1].docs[0].ok._revisions.start, 1)
    assert.equal(json[2].docs[0].error.error, 'not_found')
    assert.deepEqual((await client.postBulkGet({ db, docs: [] })).result.results, [])
    const streamed = JSON.parse(await collect((await client.postBulkGetAsStream({ db, docs })).result))
    assert.equal(streamed.results.length, 3)
    for (const form of ['postBulkGetAsMixed', 'postBulkGetAsRelated']) {
      const response = await client[form]({ db, docs })
      const type = response.headers.get ? response.headers.get('content-type') : response.headers['content-type']
      assert.match(type, /^multipart\/(mixed|related); boundary="?[^"]+"?$/)
      const text = (await collect(response.result)).toString()
      assert.match(text, /"i":2/)
      assert.match(text, /"i":3/)
      assert.match(text, /error="true"/)
    }

    const diff = (await client.postRevsDiff({ db, documentRevisions: { c00: [revs[0], '2-beef'], nobody: ['1-cafe'], c02: [revs[2]] } })).result
    assert.deepEqual(Object.keys(diff).sort(), ['c00', 'nobody'])
    assert.deepEqual(diff.c00.missing, ['2-beef'])
    assert.deepEqual(diff.c00.possibleAncestors, [revs[0]])
  })

  test('postAllDocs, postAllDocsAsStream, postAllDocsQueries', async (t) => {
    const { db, revs } = await filled(t, 12)
    const all = (await client.postAllDocs({ db, includeDocs: true, updateSeq: true })).result
    assert.equal(all.totalRows, 12)
    assert.equal(all.rows.length, 12)
    assert.equal(all.rows[3].doc.i, 3)
    assert.equal(all.rows[3].value.rev, revs[3])
    assert.ok(all.updateSeq)
    const ids = async (params) => (await client.postAllDocs({ db, ...params })).result.rows.map((r) => r.id ?? r.error)
    assert.deepEqual(await ids({ startKey: 'c03', endKey: 'c05' }), ['c03', 'c04', 'c05'])
    assert.deepEqual(await ids({ startKey: 'c03', endKey: 'c05', inclusiveEnd: false }), ['c03', 'c04'])
    assert.deepEqual(await ids({ descending: true, limit: 2, skip: 1 }), ['c10', 'c09'])
    assert.deepEqual(await ids({ key: 'c07' }), ['c07'])
    assert.deepEqual(await ids({ keys: ['c07', 'nobody', 'c01'] }), ['c07', 'not_found', 'c01'])
    assert.deepEqual(await ids({ startKey: 'c03\0', limit: 1 }), ['c04'])
    const streamed = JSON.parse(await collect((await client.postAllDocsAsStream({ db, limit: 3 })).result))
    assert.equal(streamed.rows.length, 3)
    const queries = [{ limit: 1 }, { keys: ['c05'], includeDocs: true }, { descending: true, limit: 1 }]
    const { results } = (await client.postAllDocsQueries({ db, queries })).result
    assert.deepEqual(results.map((r) => r.rows.map((row) => row.id)), [['c00'], ['c05'], ['c11']])
    assert.equal(results[1].rows[0].doc.i, 5)
    const queriesStream = JSON.parse(await collect((await client.postAllDocsQueriesAsStream({ db, queries })).result))
    assert.equal(queriesStream.results.length, 3)
  })

  test('partitioned databases: putDatabase, getPartitionInformation, postPartitionAllDocs', async (t) => {
    const db = dropAfter(t, databaseName('sdk-part'))
    await client.putDatabase({ db, partitioned: true })
    assert.equal((await client.getDatabaseInformation({ db })).result.props.partitioned, true)
    await client.postBulkDocs({ db, bulkDocs: { docs: [{ _id: 'p1:a' }, { _id: 'p1:b' }, { _id: 'p2:a' }] } })
    const info = (await client.getPartitionInformation({ db, partitionKey: 'p1' })).result
    assert.equal(info.partition, 'p1')
    assert.equal(info.docCount, 2)
    const rows = (await client.postPartitionAllDocs({ db, partitionKey: 'p1', includeDocs: true })).result.rows
    assert.deepEqual(rows.map((r) => r.doc._id), ['p1:a', 'p1:b'])
    const streamed = JSON.parse(await collect((await client.postPartitionAllDocsAsStream({ db, partitionKey: 'p1', startKey: 'p1:b' })).result))
    assert.deepEqual(streamed.rows.map((r) => r.id), ['p1:b'])
    await assert.rejects(client.postDocument({ db, document: { _id: 'none' } }), fails(400, 'illegal_docid'))
  })

  test('design documents are stored: put, head, get, delete, postDesignDocs, postDesignDocsQueries', async (t) => {
    const { db } = await filled(t, 2)
    const designDocument = { language: 'javascript', views: { all: { map: 'function (doc) { emit(doc._id) }', reduce: '_count' } } }
    const { rev } = (await client.putDesignDocument({ db, ddoc: 'd', designDocument })).result
    assert.equal((await client.headDesignDocument({ db, ddoc: 'd' })).status, 200)
    const got = (await client.getDesignDocument({ db, ddoc: 'd' })).result
    assert.equal(got._rev, rev)
    assert.equal(got.views.all.map, designDocument.views.all.map)
    assert.equal(got.views.all.reduce, '_count')
    assert.deepEqual((await client.postDesignDocs({ db })).result.rows.map((r) => r.id), ['_design/d'])
    const { results } = (await client.postDesignDocsQueries({ db, queries: [{ limit: 5 }] })).result
    assert.deepEqual(results[0].rows.map((r) => r.id), ['_design/d'])
    await client.deleteDesignDocument({ db, ddoc: 'd', rev })
    await assert.rejects(client.headDesignDocument({ db, ddoc: 'd' }), missing)
  })

  test('local documents: put, head, get, delete', async (t) => {
    const db = await createDatabase(t, 'sdk')
    const put = (await client.putLocalDocument({ db, docId: 'checkpoint', document: { seq: 'x' } })).result
    assert.equal(put.id, '_local/checkpoint')
    assert.equal((await client.headLocalDocument({ db, docId: 'checkpoint' })).status, 200)
    assert.equal((await client.getLocalDocument({ db, docId: 'checkpoint' })).result.seq, 'x')
    await client.deleteLocalDocument({ db, docId: 'checkpoint' })
    await assert.rejects(client.getLocalDocument({ db, docId: 'checkpoint' }), fails(404, 'not_found'))
  })

  test('attachments: put, head, get, range, delete', async (t) => {
    const db = await createDatabase(t, 'sdk')
    const binary = randomBytes(200_000)
    const name = 'pictures/one.png'
    const at = { db, docId: 'doc', attachmentName: name }
    const put = (await client.putAttachment({ ...at, attachment: binary, contentType: 'image/png' })).result
    assert.match(put.rev, /^1-/)
    const got = await client.getAttachment({ ...at, accept: 'image/png' })
    assert.ok(binary.equals(await collect(got.result)))
    const head = await client.headAttachment(at)
    assert.equal(head.headers.get ? head.headers.get('content-type') : head.headers['content-type'], 'image/png')

    const text = 'text '.repeat(2000)
    const second = (await client.putAttachment({ db, docId: 'doc', attachmentName: 't.txt', attachment: Buffer.from(text), contentType: 'text/plain', rev: put.rev })).result
    assert.equal((await collect((await client.getAttachment({ db, docId: 'doc', attachmentName: 't.txt' })).result)).toString(), text)
    const stub = (await client.getDocument({ db, docId: 'doc', attEncodingInfo: true })).result._attachments['t.txt']
    assert.equal(stub.length, text.length)
    assert.equal(stub.encoding, 'gzip')
    assert.equal(stub.revpos, 2)
    await assert.rejects(client.deleteAttachment({ ...at, rev: put.rev }), fails(409))
    assert.match((await client.deleteAttachment({ ...at, rev: second.rev })).result.rev, /^3-/)
    await assert.rejects(client.headAttachment(at), missing)
  })

  test('attachments stored as they are: length, ETag and a range', async (t) => {
    // the SDK compresses what putAttachment sends, and ranges count stored bytes, so this one goes inline
    const db = await createDatabase(t, 'sdk')
    const binary = randomBytes(50_000)
    const at = { db, docId: 'doc', attachmentName: 'one.png' }
    await client.putDocument({ db, docId: 'doc', document: { _attachments: { 'one.png': { contentType: 'image/png', data: binary.toString('base64') } } } })
    const part = await client.getAttachment({ ...at, range: 'bytes=1000-1999' })
    assert.equal(part.status, 206)
    assert.ok(binary.subarray(1000, 2000).equals(await collect(part.result)))
    const head = await client.headAttachment(at)
    const header = (n) => head.headers.get ? head.headers.get(n) : head.headers[n]
    assert.equal(header('content-type'), 'image/png')
    assert.equal(Number(header('content-length')), binary.length)
    assert.equal(header('etag'), `"${createHash('md5').update(binary).digest('base64')}"`)
    assert.equal(header('accept-ranges'), 'bytes')
  })
})

describe('SDK changes operations', { concurrency: true, timeout: 60_000 }, () => {
  test('postChanges and postChangesAsStream, with filters', async (t) => {
    const { db } = await filled(t, 20)
    const all = (await client.postChanges({ db })).result
    assert.equal(all.results.length, 20)
    assert.equal(all.pending, 0)
    const head = (await client.postChanges({ db, limit: 5, includeDocs: true, seqInterval: 5 })).result
    assert.equal(head.results.length, 5)
    assert.equal(head.pending, 15)
    assert.equal(typeof head.results[0].doc.i, 'number')
    assert.equal((await client.postChanges({ db, since: head.lastSeq })).result.results.length, 15)
    assert.equal((await client.postChanges({ db, since: 'now' })).result.results.length, 0)
    const newest = (await client.postChanges({ db, descending: true, limit: 1 })).result
    assert.equal(newest.results.length, 1)
    const named = (await client.postChanges({ db, filter: '_doc_ids', docIds: ['c03', 'c04'] })).result
    assert.deepEqual(named.results.map((r) => r.id).sort(), ['c03', 'c04'])
    const selected = (await client.postChanges({ db, filter: '_selector', selector: { even: true, i: { $gt: 9 } } })).result
    assert.equal(selected.results.length, 5)
    await client.putDesignDocument({ db, ddoc: 'd', designDocument: {} })
    const design = (await client.postChanges({ db, filter: '_design' })).result
    assert.deepEqual(design.results.map((r) => r.id), ['_design/d'])
    const streamed = JSON.parse(await collect((await client.postChangesAsStream({ db, since: head.lastSeq })).result))
    assert.equal(streamed.results.length, 16)
    const lines = (await collect((await client.postChangesAsStream({ db, feed: 'continuous', timeout: 200 })).result)).toString().split('\n').filter(Boolean)
    assert.equal(lines.length, 22)
    assert.ok(JSON.parse(lines.at(-1)).last_seq)
    await assert.rejects(client.postChanges({ db, since: 'not a sequence' }), fails(400))
  })

  test('a longpoll is answered by the next change', async (t) => {
    const { db } = await filled(t, 1)
    const since = (await client.getDatabaseInformation({ db })).result.updateSeq
    const poll = client.postChanges({ db, feed: 'longpoll', since, timeout: 30_000 })
    await client.putDocument({ db, docId: 'awaited', document: {} })
    const { result } = await within(20_000, 'answer of the longpoll', poll)
    assert.deepEqual(result.results.map((r) => r.id), ['awaited'])
  })

  test('ChangesFollower: one-off to the end, and following new changes', async (t) => {
    const { db } = await filled(t, 50)
    const seen = []
    for await (const change of new ChangesFollower(client, { db }).startOneOff()) seen.push(change.id)
    assert.equal(new Set(seen).size, 50)

    const follower = new ChangesFollower(client, { db, since: 'now', includeDocs: true })
    t.after(() => follower.stop())
    const stream = follower.start()
    const followed = []
    const last = new Promise((resolve, reject) => {
      stream.on('error', reject)
      stream.on('data', (change) => {
        followed.push(change.doc._id)
        if (change.id.startsWith('live')) resolve()
      })
    })
    // 'now' is decided by the server when the first request reaches it, so
    // write until the follower, surely under way then, reports one
    let written = 0
    let done = false
    last.then(() => { done = true }, () => { done = true })
    const writing = (async () => {
      while (!done && written < 2000) await client.putDocument({ db, docId: `live${written++}`, document: {} })
    })()
    await within(30_000, 'a followed change', last)
    await writing
    follower.stop()
    assert.ok(followed.every((id) => id.startsWith('live')))
  })
})

describe('SDK view operations', { concurrency: true, timeout: 60_000 }, () => {
  const designDocument = {
    views: {
      i: { map: 'function (doc) { emit(doc.i, doc.even) }' },
      even: { map: 'function (doc) { emit([doc.even, doc.i], doc.i) }', reduce: '_sum' },
      stats: { map: 'function (doc) { emit(doc.even, doc.i) }', reduce: '_stats' }
    },
    filters: { odd: 'function (doc, req) { return doc.even === false && doc.i >= Number(req.query.from || 0) }' }
  }

  async function viewed (t, count) {
    const { db } = await filled(t, count)
    const { status, result } = await client.putDesignDocument({ db, ddoc: 'd', designDocument })
    assert.equal(status, 201)
    assert.match(result.rev, /^1-/)
    return db
  }

  test('postView and postViewAsStream: ranges, keys, docs, reduce, groups, update', async (t) => {
    const db = await viewed(t, 20)
    const query = { db, ddoc: 'd' }
    const all = (await client.postView({ ...query, view: 'i' })).result
    assert.equal(all.totalRows, 20)
    assert.deepEqual(all.rows[1], { id: 'c01', key: 1, value: false })
    const range = (await client.postView({ ...query, view: 'i', startKey: 5, endKey: 8, inclusiveEnd: false, includeDocs: true })).result
    assert.deepEqual(range.rows.map((r) => r.doc.i), [5, 6, 7])
    assert.deepEqual((await client.postView({ ...query, view: 'i', keys: [9, 3, 77] })).result.rows.map((r) => r.id), ['c09', 'c03'])
    assert.deepEqual((await client.postView({ ...query, view: 'i', key: 4 })).result.rows.map((r) => r.id), ['c04'])
    assert.deepEqual((await client.postView({ ...query, view: 'i', descending: true, skip: 2, limit: 2 })).result.rows.map((r) => r.key), [17, 16])
    assert.deepEqual((await client.postView({ ...query, view: 'even' })).result.rows, [{ key: null, value: 190 }])
    assert.deepEqual((await client.postView({ ...query, view: 'even', groupLevel: 1 })).result.rows, [{ key: [false], value: 100 }, { key: [true], value: 90 }])
    assert.equal((await client.postView({ ...query, view: 'even', group: true })).result.rows.length, 20)
    const stats = (await client.postView({ ...query, view: 'stats', group: true, keys: [true] })).result.rows
    assert.deepEqual(stats, [{ key: true, value: { sum: 90, count: 10, min: 0, max: 18, sumsqr: 1140 } }])
    await client.putDocument({ db, docId: 'late', document: { i: 100, even: true } })
    assert.equal((await client.postView({ ...query, view: 'i', update: 'true', key: 100 })).result.rows.length, 1)
    assert.equal((await client.postView({ ...query, view: 'i', update: 'false', stable: true })).status, 200)
    const streamed = JSON.parse(await collect((await client.postViewAsStream({ ...query, view: 'i', limit: 3 })).result))
    assert.deepEqual(streamed.rows.map((r) => r.id), ['c00', 'c01', 'c02'])
    await assert.rejects(client.postView({ ...query, view: 'none' }), fails(404, 'not_found'))
    await assert.rejects(client.postView({ ...query, view: 'i', reduce: true }), fails(400, 'query_parse_error'))
  })

  test('postViewQueries and postViewQueriesAsStream', async (t) => {
    const db = await viewed(t, 10)
    const queries = [{ startKey: 2, endKey: 3 }, { keys: [8] }, { limit: 1, descending: true, includeDocs: true }]
    const { result } = await client.postViewQueries({ db, ddoc: 'd', view: 'i', queries })
    assert.deepEqual(result.results.map((r) => r.rows.map((row) => row.id)), [['c02', 'c03'], ['c08'], ['c09']])
    assert.equal(result.results[2].rows[0].doc.i, 9)
    const streamed = JSON.parse(await collect((await client.postViewQueriesAsStream({ db, ddoc: 'd', view: 'even', queries: [{}, { groupLevel: 1 }] })).result))
    assert.deepEqual(streamed.results.map((r) => r.rows.length), [1, 2])
  })

  test('getDesignDocumentInformation, getDesignDocument, deleteDesignDocument', async (t) => {
    const db = await viewed(t, 10)
    await client.postView({ db, ddoc: 'd', view: 'i' })
    const info = (await client.getDesignDocumentInformation({ db, ddoc: 'd' })).result
    assert.equal(info.name, 'd')
    assert.equal(info.viewIndex.language, 'javascript')
    assert.match(info.viewIndex.signature, /^[0-9a-f]{32}$/)
    assert.equal(typeof info.viewIndex.compactRunning, 'boolean')
    for (const size of ['active', 'external', 'file']) assert.equal(typeof info.viewIndex.sizes[size], 'number')
    const got = (await client.getDesignDocument({ db, ddoc: 'd' })).result
    assert.deepEqual(Object.keys(got.views), ['i', 'even', 'stats'])
    await client.deleteDesignDocument({ db, ddoc: 'd', rev: got._rev })
    await assert.rejects(client.postView({ db, ddoc: 'd', view: 'i' }), fails(404, 'not_found'))
    await assert.rejects(client.putDesignDocument({ db, ddoc: 'bad', designDocument: { views: { v: { map: 'function (' } } } }), fails(400, 'compilation_error'))
  })

  test('postPartitionView and postPartitionViewAsStream', async (t) => {
    const db = await createDatabase(t, 'sdk', '?partitioned=true')
    await client.postBulkDocs({ db, bulkDocs: { docs: [{ _id: 'cat:1', n: 1 }, { _id: 'cat:2', n: 2 }, { _id: 'dog:1', n: 3 }] } })
    await client.putDesignDocument({ db, ddoc: 'd', designDocument: { views: { n: { map: 'function (doc) { emit(doc.n, doc.n) }', reduce: '_sum' } } } })
    const query = { db, partitionKey: 'cat', ddoc: 'd', view: 'n' }
    const cats = (await client.postPartitionView({ ...query, reduce: false, includeDocs: true })).result
    assert.deepEqual(cats.rows.map((r) => r.doc._id), ['cat:1', 'cat:2'])
    assert.deepEqual((await client.postPartitionView(query)).result.rows, [{ key: null, value: 3 }])
    assert.deepEqual((await client.postPartitionView({ ...query, reduce: false, startKey: 2 })).result.rows.map((r) => r.id), ['cat:2'])
    const streamed = JSON.parse(await collect((await client.postPartitionViewAsStream({ ...query, reduce: false, limit: 1 })).result))
    assert.deepEqual(streamed.rows.map((r) => r.id), ['cat:1'])
    await client.putDesignDocument({ db, ddoc: 'g', designDocument: { options: { partitioned: false }, views: { n: { map: 'function (doc) { emit(doc.n) }' } } } })
    assert.equal((await client.postView({ db, ddoc: 'g', view: 'n' })).result.totalRows, 3)
  })

  test('postChanges through a filter function and through a view', async (t) => {
    const db = await viewed(t, 10)
    const odd = (await client.postChanges({ db, filter: 'd/odd' })).result
    assert.deepEqual(odd.results.map((r) => r.id).sort(), ['c01', 'c03', 'c05', 'c07', 'c09'])
    const seen = (await client.postChanges({ db, filter: '_view', view: 'd/i', limit: 3 })).result
    assert.equal(seen.results.length, 3)
    await assert.rejects(client.postChanges({ db, filter: 'd/none' }), fails(404, 'not_found'))
  })
})
