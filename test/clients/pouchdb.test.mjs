// PouchDB 9 talking to the server through its http adapter, one request kind
// at a time. Two-way replication has its own file, pouchdb-sync.test.mjs.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createHash, randomBytes } from 'node:crypto'
import PouchDB from 'pouchdb'
import { createDatabase, databaseName, dropAfter, request, url, within } from './target.mjs'

const open = (name) => new PouchDB(`${url}/${encodeURIComponent(name)}`, { skip_setup: true })

describe('PouchDB http adapter', { concurrency: true, timeout: 120_000 }, () => {
  test('creates a missing database by itself and destroys it', async (t) => {
    const name = dropAfter(t, databaseName('pouch-setup'))
    const db = new PouchDB(`${url}/${name}`)
    const info = await db.info()
    assert.equal(info.db_name, name)
    assert.equal(info.doc_count, 0)
    assert.equal(info.adapter, 'http')
    assert.ok(await db.id())
    await db.destroy()
    assert.equal((await request('HEAD', '/' + name)).status, 404)
  })

  test('puts, posts, gets, updates and removes', async (t) => {
    const db = open(await createDatabase(t, 'pouch-crud'))
    const first = await db.put({ _id: 'a/b c+d?ü', text: 'ä\u2028\ud83d\ude00', n: 1 })
    assert.match(first.rev, /^1-[0-9a-f]{32}$/)
    const got = await db.get('a/b c+d?ü')
    assert.deepEqual(got, { _id: 'a/b c+d?ü', _rev: first.rev, text: 'ä\u2028\ud83d\ude00', n: 1 })

    const second = await db.put({ ...got, n: 2 })
    assert.match(second.rev, /^2-/)
    assert.equal((await db.get(got._id, { rev: first.rev })).n, 1)
    const history = await db.get(got._id, { revs: true, revs_info: true, conflicts: true })
    assert.deepEqual(history._revisions, { start: 2, ids: [second.rev.slice(2), first.rev.slice(2)] })
    assert.deepEqual(history._revs_info.map((r) => r.rev), [second.rev, first.rev])
    assert.equal(history._revs_info[0].status, 'available')
    assert.equal(history._conflicts, undefined)

    await assert.rejects(db.put({ _id: got._id, n: 3 }), { status: 409, name: 'conflict' })
    await assert.rejects(db.get('nobody'), { status: 404, name: 'not_found', reason: 'missing' })

    const removed = await db.remove(got._id, second.rev)
    assert.match(removed.rev, /^3-/)
    await assert.rejects(db.get(got._id), { status: 404, reason: 'deleted' })
    assert.equal((await db.get(got._id, { rev: removed.rev }))._deleted, true)

    const posted = await db.post({ made: 'by post' })
    assert.equal((await db.get(posted.id)).made, 'by post')
    const info = await db.info()
    assert.equal(info.doc_count, 1)
    assert.equal(info.doc_del_count, 1)
  })

  test('keeps a design document and a local document', async (t) => {
    const db = open(await createDatabase(t, 'pouch-special'))
    const ddoc = { _id: '_design/d', language: 'javascript', views: { v: { map: 'function (doc) { emit(doc._id) }' } } }
    const { rev } = await db.put(ddoc)
    assert.deepEqual(await db.get('_design/d'), { ...ddoc, _rev: rev })
    await db.put({ _id: '_local/l', here: true })
    const local = await db.get('_local/l')
    assert.equal(local.here, true)
    await db.put({ ...local, here: false })
    assert.equal((await db.get('_local/l')).here, false)
    assert.deepEqual((await db.allDocs()).rows.map((r) => r.id), ['_design/d'])
  })

  test('writes in bulk, with conflicts per entry and with new_edits false', async (t) => {
    const db = open(await createDatabase(t, 'pouch-bulk'))
    const results = await db.bulkDocs([{ _id: 'a', v: 1 }, { _id: 'b', v: 1 }, { v: 'no id' }])
    assert.deepEqual(results.map((r) => r.ok), [true, true, true])
    assert.deepEqual(results.slice(0, 2).map((r) => r.id), ['a', 'b'])
    assert.ok(results[2].id)

    const again = await db.bulkDocs([
      { _id: 'a', _rev: results[0].rev, v: 2 },
      { _id: 'b', v: 2 },
      { _id: 'c', v: 1 }
    ])
    assert.equal(again[0].ok, true)
    assert.equal(again[1].error, 'conflict')
    assert.equal(again[1].id, 'b')
    assert.equal(again[2].ok, true)

    const foreign = [
      { _id: 'f', _rev: '2-bbbb', _revisions: { start: 2, ids: ['bbbb', 'aaaa'] }, side: 'b' },
      { _id: 'f', _rev: '2-cccc', _revisions: { start: 2, ids: ['cccc', 'aaaa'] }, side: 'c' }
    ]
    assert.deepEqual(await db.bulkDocs(foreign, { new_edits: false }), [])
    const winner = await db.get('f', { conflicts: true })
    assert.equal(winner._rev, '2-cccc')
    assert.deepEqual(winner._conflicts, ['2-bbbb'])
    const leaves = await db.get('f', { open_revs: 'all' })
    assert.deepEqual(leaves.map((l) => l.ok._rev).sort(), ['2-bbbb', '2-cccc'])
    const some = await db.get('f', { open_revs: ['2-bbbb', '9-dead'] })
    assert.deepEqual(some.map((l) => l.ok ? l.ok._rev : l.missing).sort(), ['2-bbbb', '9-dead'])
  })

  test('reads in bulk: allDocs with ranges and keys, bulkGet, revsDiff', async (t) => {
    const db = open(await createDatabase(t, 'pouch-read'))
    const docs = Array.from({ length: 20 }, (_, i) => ({ _id: `d${String(i).padStart(2, '0')}`, i }))
    const written = await db.bulkDocs(docs)
    const gone = await db.remove('d19', written[19].rev)

    const all = await db.allDocs({ include_docs: true })
    assert.equal(all.total_rows, 19)
    assert.deepEqual(all.rows.map((r) => r.doc.i), docs.slice(0, 19).map((d) => d.i))
    const range = await db.allDocs({ startkey: 'd03', endkey: 'd07', inclusive_end: false })
    assert.deepEqual(range.rows.map((r) => r.id), ['d03', 'd04', 'd05', 'd06'])
    const back = await db.allDocs({ descending: true, limit: 2, skip: 1 })
    assert.deepEqual(back.rows.map((r) => r.id), ['d17', 'd16'])

    const keyed = await db.allDocs({ keys: ['d05', 'none', 'd19', 'd05'], include_docs: true })
    assert.equal(keyed.rows.length, 4)
    assert.equal(keyed.rows[0].doc.i, 5)
    assert.deepEqual({ key: keyed.rows[1].key, error: keyed.rows[1].error }, { key: 'none', error: 'not_found' })
    assert.deepEqual(keyed.rows[2].value, { rev: gone.rev, deleted: true })
    assert.equal(keyed.rows[2].doc, null)
    assert.equal(keyed.rows[3].id, 'd05')

    const bulk = await db.bulkGet({
      docs: [{ id: 'd01' }, { id: 'd02', rev: written[2].rev }, { id: 'none' }, { id: 'd03', rev: '7-beef' }],
      revs: true
    })
    assert.deepEqual(bulk.results.map((r) => r.id), ['d01', 'd02', 'none', 'd03'])
    assert.equal(bulk.results[0].docs[0].ok.i, 1)
    assert.deepEqual(bulk.results[1].docs[0].ok._revisions, { start: 1, ids: [written[2].rev.slice(2)] })
    assert.equal(bulk.results[2].docs[0].error.error, 'not_found')
    assert.equal(bulk.results[3].docs[0].error.error, 'not_found')

    const diff = await db.revsDiff({ d00: [written[0].rev, '2-beef'], fresh: ['1-cafe'], d01: [written[1].rev] })
    assert.deepEqual(Object.keys(diff).sort(), ['d00', 'fresh'])
    assert.deepEqual(diff.d00.missing, ['2-beef'])
    assert.deepEqual(diff.fresh.missing, ['1-cafe'])
  })

  test('puts, gets, lists and removes attachments', async (t) => {
    const db = open(await createDatabase(t, 'pouch-att'))
    const binary = randomBytes(100_000)
    const put = await db.putAttachment('doc', 'dir/picture 1.bin', binary, 'application/octet-stream')
    assert.ok(binary.equals(await db.getAttachment('doc', 'dir/picture 1.bin')))

    const text = 'line of text\n'.repeat(500)
    const second = await db.putAttachment('doc', 'note.txt', put.rev, Buffer.from(text), 'text/plain')
    assert.equal((await db.getAttachment('doc', 'note.txt')).toString(), text)
    assert.ok(binary.equals(await db.getAttachment('doc', 'dir/picture 1.bin', { rev: put.rev })))

    const stubs = (await db.get('doc'))._attachments
    assert.deepEqual(Object.keys(stubs).sort(), ['dir/picture 1.bin', 'note.txt'])
    const stub = stubs['dir/picture 1.bin']
    assert.equal(stub.stub, true)
    assert.equal(stub.length, binary.length)
    assert.equal(stub.revpos, 1)
    assert.equal(stub.content_type, 'application/octet-stream')
    assert.equal(stub.digest, 'md5-' + createHash('md5').update(binary).digest('base64'))
    assert.equal(stubs['note.txt'].length, text.length)
    assert.equal(stubs['note.txt'].revpos, 2)

    const inline = await db.get('doc', { attachments: true })
    assert.equal(inline._attachments['note.txt'].data, Buffer.from(text).toString('base64'))
    const asBuffers = await db.get('doc', { attachments: true, binary: true })
    assert.ok(binary.equals(asBuffers._attachments['dir/picture 1.bin'].data))

    // a stub in an update keeps the bytes; leaving a name out drops them
    const kept = await db.get('doc')
    delete kept._attachments['note.txt']
    const third = await db.put({ ...kept, changed: true })
    assert.ok(binary.equals(await db.getAttachment('doc', 'dir/picture 1.bin')))
    await assert.rejects(db.getAttachment('doc', 'note.txt'), { status: 404 })
    assert.equal((await db.getAttachment('doc', 'note.txt', { rev: second.rev })).toString(), text)

    await db.removeAttachment('doc', 'dir/picture 1.bin', third.rev)
    const bare = await db.get('doc')
    assert.equal(bare._attachments, undefined)
    assert.equal(bare.changed, true)
    await assert.rejects(db.put({ _id: 'stubless', _attachments: { x: { stub: true, digest: 'md5-AAAAAAAAAAAAAAAAAAAAAA==', content_type: 'text/plain', revpos: 1, length: 1 } } }), { status: 412 })
  })

  test('reads the changes feed: since, limit, style, doc_ids, selector, docs', async (t) => {
    const db = open(await createDatabase(t, 'pouch-changes'))
    await db.bulkDocs(Array.from({ length: 60 }, (_, i) => ({ _id: `c${String(i).padStart(2, '0')}`, even: i % 2 === 0 })))
    const all = await db.changes({ since: 0, include_docs: true })
    assert.equal(new Set(all.results.map((r) => r.id)).size, 60)
    for (const row of all.results) assert.equal(row.doc._rev, row.changes[0].rev)

    const head = await db.changes({ since: 0, limit: 7 })
    assert.equal(head.results.length, 7)
    const tail = await db.changes({ since: head.last_seq })
    assert.equal(tail.results.length, 53)
    const seen = new Set(head.results.map((r) => r.id))
    assert.ok(tail.results.every((r) => !seen.has(r.id)))
    assert.equal((await db.changes({ since: 'now' })).results.length, 0)

    const named = await db.changes({ since: 0, doc_ids: ['c03', 'c41', 'none'] })
    assert.deepEqual(named.results.map((r) => r.id).sort(), ['c03', 'c41'])
    const selected = await db.changes({ since: 0, selector: { even: true } })
    assert.equal(selected.results.length, 30)

    await db.bulkDocs([
      { _id: 'x', _rev: '1-aaaa', _revisions: { start: 1, ids: ['aaaa'] } },
      { _id: 'x', _rev: '1-bbbb', _revisions: { start: 1, ids: ['bbbb'] } }
    ], { new_edits: false })
    const leaves = await db.changes({ since: 0, doc_ids: ['x'], style: 'all_docs' })
    assert.deepEqual(leaves.results[0].changes.map((c) => c.rev).sort(), ['1-aaaa', '1-bbbb'])
  })

  test('follows the live changes feed', async (t) => {
    const db = open(await createDatabase(t, 'pouch-live'))
    await db.put({ _id: 'before' })
    const { update_seq: since } = await db.info()
    const seen = []
    let feed
    const done = new Promise((resolve, reject) => {
      feed = db.changes({ live: true, since, include_docs: true })
        .on('change', (change) => {
          seen.push(change)
          if (change.id === 'last') resolve()
        })
        .on('error', reject)
    })
    try {
      const one = await db.put({ _id: 'one', v: 1 })
      await db.remove('one', one.rev)
      await db.bulkDocs(Array.from({ length: 50 }, (_, i) => ({ _id: `bulk${i}` })))
      await db.put({ _id: 'last' })
      await within(30_000, 'the change of the last document', done)
    } finally {
      feed.cancel()
    }
    const ids = seen.map((c) => c.id)
    assert.ok(!ids.includes('before'))
    assert.equal(ids.at(-1), 'last')
    for (let i = 0; i < 50; i++) assert.ok(ids.includes(`bulk${i}`))
    assert.equal(seen.filter((c) => c.id === 'one').at(-1).deleted, true)
    assert.equal(seen.at(-1).doc._id, 'last')
  })
})

describe('PouchDB views of the server', { concurrency: true, timeout: 120_000 }, () => {
  const ddoc = {
    _id: '_design/shop',
    views: {
      price: { map: 'function (doc) { if (doc.price !== undefined) emit([doc.kind, doc.price], doc.price) }', reduce: '_sum' },
      kind: { map: 'function (doc) { emit(doc.kind) }', reduce: '_count' },
      script: { map: 'function (doc) { emit(doc.kind, doc.price) }', reduce: 'function (keys, values, rereduce) { return sum(values) }' },
      linked: { map: 'function (doc) { if (doc.next) emit(doc._id, { _id: doc.next }) }' }
    }
  }

  async function shop (t) {
    const db = open(await createDatabase(t, 'pouch-view'))
    await db.bulkDocs([ddoc, ...Array.from({ length: 12 }, (_, i) => ({ _id: `p${String(i).padStart(2, '0')}`, kind: ['cup', 'jug', 'pot'][i % 3], price: i, next: i === 3 ? 'p07' : undefined }))])
    return db
  }

  test('query: ranges, keys, descending, skip and limit', async (t) => {
    const db = await shop(t)
    const all = await db.query('shop/kind', { reduce: false })
    assert.equal(all.total_rows, 12)
    assert.equal(all.offset, 0)
    assert.deepEqual(all.rows[0], { id: 'p00', key: 'cup', value: null })
    assert.deepEqual((await db.query('shop/kind', { reduce: false, key: 'jug' })).rows.map((r) => r.id), ['p01', 'p04', 'p07', 'p10'])
    assert.deepEqual((await db.query('shop/kind', { reduce: false, keys: ['pot', 'none', 'cup'] })).rows.map((r) => r.id),
      ['p02', 'p05', 'p08', 'p11', 'p00', 'p03', 'p06', 'p09'])
    const range = await db.query('shop/price', { reduce: false, startkey: ['jug', 4], endkey: ['jug', {}], inclusive_end: false })
    assert.deepEqual(range.rows.map((r) => r.value), [4, 7, 10])
    assert.equal(range.offset, 5)
    const back = await db.query('shop/price', { reduce: false, startkey: ['jug', {}], endkey: ['jug'], descending: true, skip: 1, limit: 2 })
    assert.deepEqual(back.rows.map((r) => r.value), [7, 4])
  })

  test('query: reduce, group, group_level, groups of keys', async (t) => {
    const db = await shop(t)
    assert.deepEqual((await db.query('shop/price')).rows, [{ key: null, value: 66 }])
    assert.deepEqual((await db.query('shop/kind', { group: true })).rows, ['cup', 'jug', 'pot'].map((key) => ({ key, value: 4 })))
    assert.deepEqual((await db.query('shop/price', { group_level: 1 })).rows, [{ key: ['cup'], value: 18 }, { key: ['jug'], value: 22 }, { key: ['pot'], value: 26 }])
    assert.deepEqual((await db.query('shop/script', { group: true, keys: ['pot', 'cup'] })).rows, [{ key: 'pot', value: 26 }, { key: 'cup', value: 18 }])
    await assert.rejects(db.query('shop/kind', { include_docs: true }), { status: 400, name: 'query_parse_error' })
    await assert.rejects(db.query('shop/nothing'), { status: 404, name: 'not_found' })
  })

  test('query: include_docs, linked documents, update_seq', async (t) => {
    const db = await shop(t)
    const withDocs = await db.query('shop/kind', { reduce: false, key: 'pot', include_docs: true, limit: 1 })
    assert.equal(withDocs.rows[0].doc.price, 2)
    const linked = await db.query('shop/linked', { include_docs: true })
    assert.deepEqual(linked.rows.map((r) => [r.id, r.value._id, r.doc._id]), [['p03', 'p07', 'p07']])
    assert.ok((await db.query('shop/kind', { reduce: false, limit: 1, update_seq: true })).update_seq)
  })

  test('query: stale answers with what there is, a plain one with what was written', async (t) => {
    const db = open(await createDatabase(t, 'pouch-stale'))
    await db.put({ _id: '_design/s', autoupdate: false, views: { v: { map: 'function (doc) { emit(doc._id) }' } } })
    await db.put({ _id: 'one' })
    assert.deepEqual((await db.query('s/v', { stale: 'ok' })).rows, [])
    assert.deepEqual((await db.query('s/v')).rows.map((r) => r.id), ['one'])
    await db.put({ _id: 'two' })
    assert.deepEqual((await db.query('s/v', { stale: 'ok' })).rows.map((r) => r.id), ['one'])
    assert.deepEqual((await db.query('s/v', { stale: 'update_after' })).rows.map((r) => r.id), ['one'])
    assert.deepEqual((await db.query('s/v')).rows.map((r) => r.id), ['one', 'two'])
  })

  test('changes through a filter function and through a view', async (t) => {
    const db = await shop(t)
    await db.put({ _id: '_design/f', filters: { dear: 'function (doc, req) { return doc.price >= Number(req.query.least) }' } })
    const filtered = await db.changes({ filter: 'f/dear', query_params: { least: 10 }, include_docs: true })
    assert.deepEqual(filtered.results.map((r) => r.id).sort(), ['p10', 'p11'])
    const viewed = await db.changes({ filter: '_view', view: 'shop/linked' })
    assert.deepEqual(viewed.results.map((r) => r.id), ['p03'])
  })

  test('a validation function refuses writes one by one', async (t) => {
    const db = open(await createDatabase(t, 'pouch-validate'))
    await db.put({ _id: '_design/v', validate_doc_update: 'function (doc) { if (doc.bad) throw { forbidden: "bad " + doc._id } }' })
    await assert.rejects(db.put({ _id: 'x', bad: true }), { status: 403, name: 'forbidden', reason: 'bad x' })
    const results = await db.bulkDocs([{ _id: 'a' }, { _id: 'b', bad: true }])
    assert.equal(results[0].ok, true)
    assert.equal(results[1].name, 'forbidden')
    await assert.rejects(db.get('b'), { status: 404 })
  })
})
